/* nvml.c of a machine whose device nodes and driver release decide what it finds. */
#define nvmlInitWithFlags plain_start
#define nvmlDeviceGetCount_v2 plain_count
#define nvmlDeviceGetHandleByIndex_v2 plain_handle
#define nvmlSystemGetDriverVersion plain_driver
#define nvmlSystemGetCudaDriverVersion plain_cuda
#define nvmlSystemGetCudaDriverVersion_v2 plain_cuda_v2
#include "nvml.c"
#undef nvmlInitWithFlags
#undef nvmlDeviceGetCount_v2
#undef nvmlDeviceGetHandleByIndex_v2
#undef nvmlSystemGetDriverVersion
#undef nvmlSystemGetCudaDriverVersion
#undef nvmlSystemGetCudaDriverVersion_v2
#include "lab_gpus.h"

enum { NO_PERMISSION = 4, DRIVER_NOT_LOADED = 9, UNKNOWN = 999 };

int nvmlInitWithFlags(unsigned flags)
{
    FATE(0);
    switch (lab_refusal()) {
    case 0: return plain_start(flags);
    case EPERM: return UNKNOWN;
    case EACCES: return NO_PERMISSION;
    default: return DRIVER_NOT_LOADED;
    }
}

SYSTEM_TEXT(nvmlSystemGetDriverVersion, lab_driver())
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion, lab_cuda())
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion_v2, lab_cuda())

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int minors[LAB_MOST];

    FATE(0);
    *count = VALUE(0, lab_gpus(minors));
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *gpu)
{
    int minors[LAB_MOST];

    FATE((int)index);
    return (int)index < lab_gpus(minors) ? plain_handle(minors[index], gpu) : INVALID_ARGUMENT;
}
