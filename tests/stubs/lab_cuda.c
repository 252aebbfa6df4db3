/* cuda.c of a machine whose device nodes and driver release decide what it finds. With -DCUDA_VERSION=12060 it is the one of
 * a newer driver that an image brings along.
 */
#define cuInit plain_init
#define cuDriverGetVersion plain_version
#define cuDeviceGetCount plain_count
#define cuDeviceGet plain_get
#include "cuda.c"
#undef cuInit
#undef cuDriverGetVersion
#undef cuDeviceGetCount
#undef cuDeviceGet
#include "lab_gpus.h"

#ifndef CUDA_VERSION
#define CUDA_VERSION lab_cuda()
#endif

enum { NO_DEVICE = 100, INVALID_DEVICE = 101 };

int cuInit(unsigned flags)
{
    int minors[LAB_MOST];

    (void)flags;
    FATE(0);
    return lab_gpus(minors) && !lab_refusal() ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    FATE(0);
    *version = VALUE(0, CUDA_VERSION);
    return 0;
}

int cuDeviceGetCount(int *count)
{
    int minors[LAB_MOST];

    FATE(0);
    *count = VALUE(0, lab_gpus(minors));
    return 0;
}

/* A handle is the minor number, so that each GPU keeps its identity where others are missing. */
int cuDeviceGet(int *device, int ordinal)
{
    int minors[LAB_MOST];

    FATE(ordinal);
    if (ordinal >= lab_gpus(minors))
        return INVALID_DEVICE;
    *device = minors[ordinal];
    return 0;
}
