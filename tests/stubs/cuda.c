/* A stub libcuda.so.1: the healthy GPUs of nvml.c as CUDA sees them, and every fault of stub.h.
 *
 *   STUB_NAMES    CODE=NAME,...: what cuGetErrorName calls a code
 */
#include "stub.h"

/* Which GPU it is; another one with -D. */
#ifndef NAME
#define NAME "NVIDIA H100 80GB HBM3"
#define COMPUTE_MAJOR 9
#endif

enum { INVALID_VALUE = 1 };

int cuInit(unsigned flags)
{
    (void)flags;
    FATE(0);
    return 0;
}

int cuDriverGetVersion(int *version)
{
    FATE(0);
    *version = VALUE(0, 13000);
    return 0;
}

int cuDeviceGetCount(int *count)
{
    FATE(0);
    *count = VALUE(0, 1);
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    FATE(ordinal);
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    FATE(device);
    snprintf(name, size, NAME);
    return 0;
}

/* GPU-0000000N-0000-4000-8000-000000000000 */
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    FATE(device);
    memset(uuid, 0, 16);
    uuid[3] = device;
    uuid[6] = 0x40;
    uuid[8] = 0x80;
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    FATE(device);
    *bytes = (size_t)80 << 30;
    return 0;
}

int cuDeviceGetPCIBusId(char *address, int size, int device)
{
    FATE(device);
    snprintf(address, size, "0000:00:%02X.0", 6 + device);
    return 0;
}

enum { CLOCK = 13, MULTIPROCESSORS = 16, ECC = 32, L2_SIZE = 38, UNIFIED = 41, MAJOR = 75, MANAGED = 83, LAST = 100 };

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    FATE(device);
    switch (attribute) {
    case CLOCK: *value = 1980000; break;
    case MULTIPROCESSORS: *value = 132; break;
    case L2_SIZE: *value = 50 << 20; break;
    case MAJOR: *value = COMPUTE_MAJOR; break;
    case ECC: case UNIFIED: case MANAGED: *value = 1; break;
    default: *value = 0;
    }
    return attribute > LAST ? INVALID_VALUE : 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    static char somewhere;

    FATE(device);
    *context = &somewhere;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    FATE(device);
    return 0;
}

int cuGetErrorName(int code, const char **name)
{
    static char buffer[128];
    char number[16];

    snprintf(number, sizeof number, "%d", code);
    const char *entry = code ? find("STUB_NAMES", number) : "=CUDA_SUCCESS";
    snprintf(buffer, sizeof buffer, "%.*s", entry ? (int)strcspn(entry + 1, ",") : 0, entry ? entry + 1 : "");
    *name = entry ? buffer : NULL;
    return entry ? 0 : INVALID_VALUE;
}

int cuGetErrorString(int code, const char **description)
{
    (void)code;
    *description = "what went wrong";
    return 0;
}
