/* A libcuda.so.1 that works: memory is the host's, our kernels are C. Time is virtual: each call takes what it would take a small
 * GPU and its host, and nothing waits for it. working_seconds() tells it.
 *
 *   WORKING_GPUS     how many GPUs (1)
 *   WORKING_FLIP     NAME,...: functions that damage the last word they copy
 *   WORKING_CODES    NAME=CODE,...: functions that fail
 *   WORKING_HANG     NAME,...: functions that never return
 *   WORKING_LOST     set: a chain of reads ends at a wrong address
 *   WORKING_NO_PEERS set: no GPU reaches another one's memory
 *   CUDA_LAUNCH_BLOCKING as the real one
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t u64;
enum { GPUS = 4, STREAMS = 4096 };
enum { TO_GPU, FROM_GPU, PEER, COMPUTE, ENGINES };
static const double BYTES_PER_SECOND = 1e9, LAUNCH_SECONDS = 2e-6, IN_A_GRAPH_SECONDS = 1e-6, CLOCK = 1e9, READ_SECONDS = 5e-7;
static const double CALL_SECONDS = 1e-6, ALLOCATION_SECONDS = 1e-5, LOADING_SECONDS = 1e-3; /* of the host */
static double host; /* seconds that the program has lived through */
static double engine_busy[GPUS][ENGINES], busy[STREAMS], last;
static int current, streams = GPUS, capturing, captured; /* the first streams are the default ones of the GPUs */

double working_seconds(void) { return host; }

static long number(void *stream) { return stream ? (intptr_t)stream : current; }
static void until(double end) { if (end > host) host = end; }

static int fails(const char *function)
{
    const char *codes = getenv("WORKING_CODES"), *found = codes ? strstr(codes, function) : NULL, *hang = getenv("WORKING_HANG");

    while (hang && strstr(hang, function)) pause();
    return found && found[strlen(function)] == '=' ? atoi(found + strlen(function) + 1) : 0;
}

#define CHECK() do { int code = fails(__func__); if (code) return code; } while (0)

/* A stream does one thing after another, and so does an engine of a GPU. */
static void work(long stream, int engine, double seconds)
{
    double start = host += CALL_SECONDS;
    if (busy[stream] > start) start = busy[stream];
    if (engine >= 0 && engine_busy[current][engine] > start) start = engine_busy[current][engine];
    busy[stream] = start + seconds;
    if (engine >= 0) engine_busy[current][engine] = busy[stream];
    if (busy[stream] > last) last = busy[stream];
}

static void move(const char *function, void *to, const void *from, size_t size, long stream, int engine)
{
    const char *flip = getenv("WORKING_FLIP");
    memmove(to, from, size);
    if (flip && strstr(flip, function) && size >= 8) ((unsigned char *)to)[size - 1] ^= 1;
    work(stream, engine, size / BYTES_PER_SECOND);
}

int cuInit(unsigned flags) { (void)flags; CHECK(); return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = atoi(getenv("WORKING_GPUS") ? getenv("WORKING_GPUS") : "1"); return 0; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; snprintf(name, size, "NVIDIA Pretend"); return 0; }
int cuDeviceTotalMem_v2(size_t *total, int device) { (void)device; *total = (size_t)1 << 30; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, device, 16); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, void *stream)
{
    (void)stream;
    memcpy((void *)to, (void *)from, size);
    return 0;
}
int cuGetErrorName(int code, const char **name) { (void)code; *name = "CUDA_ERROR_TEST"; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < atoi(getenv("WORKING_GPUS") ?: "1") ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
int cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context - 1; return 0; }
int cuCtxSynchronize(void) { until(last); return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device) { snprintf(text, size, "0000:%02X:00.0", 0xA0 + device); return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = *total = (size_t)1 << 30; return 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case 13: *value = CLOCK / 1000; break;
    case 16: *value = 4; break;
    case 31: case 115: *value = 1; break;
    case 40: *value = 3; break;
    default: *value = 0;
    }
    return 0;
}

int cuMemAlloc_v2(u64 *pointer, size_t size) { CHECK(); host += ALLOCATION_SECONDS; *pointer = (u64)malloc(size); return 0; }
int cuMemFree_v2(u64 pointer) { host += ALLOCATION_SECONDS; free((void *)pointer); return 0; }
int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) { (void)flags; CHECK(); *pointer = malloc(size); return 0; }
int cuMemFreeHost(void *pointer) { free(pointer); return 0; }
int cuMemPoolCreate(void **pool, const int *properties) { *pool = (void *)1; return properties[0] == 1 && properties[2] == 1 ? 0 : 1; }
int cuMemPoolSetAttribute(void *pool, int attribute, u64 *value) { (void)pool; return attribute == 4 && *value == ~0ULL ? 0 : 1; }
int cuMemPoolDestroy(void *pool) { (void)pool; return 0; }
int cuMemFreeAsync(u64 pointer, void *stream) { (void)stream; host += CALL_SECONDS; free((void *)pointer); return 0; }

int cuMemAllocFromPoolAsync(u64 *pointer, size_t size, void *pool, void *stream)
{
    (void)pool, (void)stream;
    host += CALL_SECONDS;
    *pointer = (u64)malloc(size);
    return 0;
}

int cuMemsetD32_v2(u64 pointer, unsigned value, size_t count)
{
    for (size_t i = 0; i < count; i++) ((unsigned *)pointer)[i] = value;
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = (void *)(intptr_t)streams++; return 0; }
int cuStreamSynchronize(void *stream) { until(busy[number(stream)]); return 0; }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof(double)); return 0; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }

int cuEventRecord(double *event, void *stream)
{
    work(number(stream), -1, 0);
    *event = busy[number(stream)];
    return 0;
}

int cuStreamWaitEvent(void *stream, double *event, unsigned flags)
{
    (void)flags;
    if (*event > busy[number(stream)]) busy[number(stream)] = *event;
    return 0;
}

int cuEventElapsedTime(float *milliseconds, double *before, double *after) { *milliseconds = (*after - *before) * 1e3; return 0; }

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t size, void *stream)
{
    CHECK();
    move(__func__, (void *)to, from, size, number(stream), TO_GPU);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t size, void *stream)
{
    move(__func__, to, (void *)from, size, number(stream), FROM_GPU);
    return 0;
}

int cuMemcpyPeerAsync(u64 to, void *to_context, u64 from, void *from_context, size_t size, void *stream)
{
    if (!to_context || !from_context) return 1;
    move(__func__, (void *)to, (void *)from, size, number(stream), (intptr_t)to_context > (intptr_t)from_context ? PEER : FROM_GPU);
    return 0;
}

/* These return when all is done. */
static int moved(void *to, const void *from, size_t size) { until(last); host += size / BYTES_PER_SECOND; memcpy(to, from, size); return 0; }

int cuMemcpyHtoD_v2(u64 to, const void *from, size_t size) { return moved((void *)to, from, size); }
int cuMemcpyDtoH_v2(void *to, u64 from, size_t size) { return moved(to, (void *)from, size); }

int cuDeviceCanAccessPeer(int *can, int one, int other)
{
    *can = one != other && !getenv("WORKING_NO_PEERS");
    return 0;
}

int cuCtxEnablePeerAccess(void *context, unsigned flags) { (void)flags; CHECK(); return context ? 0 : 1; }

int cuModuleLoadDataEx(void **module, const char *ptx, unsigned count, int *options, void **values)
{
    (void)options, (void)values;
    *module = (void *)1;
    host += LOADING_SECONDS;
    return strstr(ptx, ".visible .entry fill_pattern") && count == 2 ? 0 : 218;
}

int cuModuleGetFunction(void **function, void *module, const char *name) { (void)module; *function = strdup(name); return 0; }

#define ARGUMENT(type, number) (*(type *)arguments[number])

int cuLaunchKernel(const char *function, unsigned grid, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
    CHECK();
    double seconds = LAUNCH_SECONDS;
    if (y != 1 || z != 1 || ty != 1 || tz != 1 || shared || extra || !threads) return 1;
    if (capturing) {
        captured++;
        return 0;
    }
    if (!strcmp(function, "fill_pattern")) {
        u64 *to = (u64 *)ARGUMENT(u64, 0);
        for (u64 i = 0; i < ARGUMENT(u64, 1); i++) to[i] = (i * ARGUMENT(u64, 2)) ^ ARGUMENT(u64, 3);
    } else if (!strcmp(function, "expect_pattern")) {
        u64 *from = (u64 *)ARGUMENT(u64, 0), *found = (u64 *)ARGUMENT(u64, 4);
        for (u64 i = ARGUMENT(u64, 1); i-- > 0;)
            if (from[i] != ((i * ARGUMENT(u64, 2)) ^ ARGUMENT(u64, 3))) found[0]++, found[1] = i;
    } else if (!strcmp(function, "fill_chain")) {
        u64 *to = (u64 *)ARGUMENT(u64, 0), nodes = ARGUMENT(u64, 1), stride = ARGUMENT(u64, 2);
        for (u64 i = 0; i < nodes; i++) to[i * stride] = (u64)(to + (i + 1) % nodes * stride);
    } else if (!strcmp(function, "follow_chain")) {
        u64 *place = (u64 *)ARGUMENT(u64, 0);
        for (u64 i = 0; i < ARGUMENT(u64, 1); i++) place = (u64 *)*place;
        *(u64 *)ARGUMENT(u64, 3) = (u64)place ^ (getenv("WORKING_LOST") ? 128 : 0);
        seconds = ARGUMENT(u64, 1) * READ_SECONDS;
    } else if (!strcmp(function, "spin")) {
        seconds = ARGUMENT(long long, 0) / CLOCK;
    } else if (strcmp(function, "nothing")) {
        return 500;
    }
    work(number(stream), grid > 1 ? COMPUTE : -1, seconds);
    if (getenv("CUDA_LAUNCH_BLOCKING")) until(busy[number(stream)]);
    return 0;
}

int cuStreamBeginCapture_v2(void *stream, int mode) { CHECK(); capturing = stream && mode == 1; captured = 0; return capturing ? 0 : 1; }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; capturing = 0; *graph = (void *)(intptr_t)captured; return 0; }

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags)
{
    *executable = graph;
    return flags ? 1 : 0;
}

int cuGraphLaunch(void *executable, void *stream)
{
    work(number(stream), -1, (intptr_t)executable * IN_A_GRAPH_SECONDS);
    return 0;
}
