// The kernels that gpudoctor runs without a framework. `make kernels` writes kernels.ptx from this file, for the oldest PTX
// that does it all: any driver since R384 (CUDA 9.0) compiles that for its GPU.
typedef unsigned long long u64;

// Each thread walks through the whole buffer in steps of the grid, four vectors of 16 bytes at a time.
#define FOR_EACH_VECTOR(count)                                                                            \
    const u64 step = (u64)gridDim.x * blockDim.x, last = count;                                           \
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                         \
    _Pragma("unroll 4") for (u64 i = first; i < last; i += step)

__device__ float4 times(float s, float4 a) { return make_float4(s * a.x, s * a.y, s * a.z, s * a.w); }
__device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Whole numbers up to 1023, so that sums and products are exact in float.
extern "C" __global__ void ramp(float *__restrict__ to, u64 floats) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < floats; i += step) to[i] = (float)(i & 1023);
}

extern "C" __global__ void saxpy(float4 *__restrict__ y, const float4 *__restrict__ x, u64 vectors, float a) {
    FOR_EACH_VECTOR(vectors) y[i] = plus(times(a, x[i]), y[i]);
}

extern "C" __global__ void triad(float4 *__restrict__ to, const float4 *__restrict__ b, const float4 *__restrict__ c,
                                 u64 vectors, float s) {
    FOR_EACH_VECTOR(vectors) to[i] = plus(b[i], times(s, c[i]));
}

extern "C" __global__ void copy(float4 *__restrict__ to, const float4 *__restrict__ from, u64 vectors) {
    FOR_EACH_VECTOR(vectors) to[i] = from[i];
}

extern "C" __global__ void write(float4 *__restrict__ to, u64 vectors, float value) {
    FOR_EACH_VECTOR(vectors) to[i] = make_float4(value, value, value, value);
}

// Each thread leaves its sum, so that the reads are needed and can be verified.
extern "C" __global__ void read(const float4 *__restrict__ from, float *__restrict__ sums, u64 vectors) {
    float4 sum = make_float4(0, 0, 0, 0);
    FOR_EACH_VECTOR(vectors) sum = plus(sum, from[i]);
    sums[first] = sum.x + sum.y + sum.z + sum.w;
}

extern "C" __global__ void square(float4 *__restrict__ to, const float4 *__restrict__ from, u64 vectors) {
    FOR_EACH_VECTOR(vectors) {
        const float4 a = from[i];
        to[i] = make_float4(a.x * a.x, a.y * a.y, a.z * a.z, a.w * a.w);
    }
}

// How many elements are not `factor * (i & 1023) + offset`, and the first of them.
extern "C" __global__ void expect_ramp(const float *__restrict__ from, u64 floats, float factor, float offset, u64 *found) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < floats; i += step)
        if (from[i] != factor * (float)(i & 1023) + offset) {
            atomicAdd(found, 1ULL);
            atomicMin(found + 1, i);
        }
}

// Keeps one SM busy for a number of its clock cycles.
extern "C" __global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

extern "C" __global__ void nothing() {}

// Memory patterns: each 8 bytes are (i * factor) ^ mask.
extern "C" __global__ void fill_pattern(u64 *__restrict__ to, u64 words, u64 factor, u64 mask) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) to[i] = (i * factor) ^ mask;
}

extern "C" __global__ void expect_pattern(const u64 *__restrict__ from, u64 words, u64 factor, u64 mask, u64 *found) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
        if (from[i] != ((i * factor) ^ mask)) {
            atomicAdd(found, 1ULL);
            atomicMin(found + 1, i);
        }
}

// A chain through the buffer: each `stride` words are the address of the next such place, and the last one of the first.
extern "C" __global__ void fill_chain(u64 *to, u64 nodes, u64 stride) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < nodes; i += step)
        to[i * stride] = (u64)(to + (i + 1) % nodes * stride);
}

// One thread of one block follows the chain, so that each read waits for the one before; and leaves the address that it came to.
extern "C" __global__ void follow_chain(u64 *from, u64 steps, u64 block, u64 *came_to) {
    if (blockIdx.x != block) return;
    u64 *place = from;
    for (u64 i = 0; i < steps; i++) place = (u64 *)*place;
    *came_to = (u64)place;
}
