"""CUDA C for the matrix products' inputs and checks; compiled by the installed toolkit (kernels.py). Needs no header.

fill      normal numbers, or whole numbers of which a share is zero, of any of our types; a counter-based generator.
times     y = M x for a column-major M: a thread a row.
dots      y = Mᵀ x: a block a column.
ticks     each SM's own count of cycles and the device's nanoseconds: two readings give the clock between them, exactly,
          where NVML's is renewed only every 100 ms.
hold      keeps the device waiting for some nanoseconds, so that the host can queue what follows.
Sums are made in FP64, which is exact for the whole numbers that are used.
"""

from __future__ import annotations

SOURCE = r"""
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

// cudaDataType_t
#define R_32F 0
#define R_64F 1
#define R_16F 2
#define R_8I 3
#define R_32I 10
#define R_16BF 14
#define R_8F_E4M3 28

__device__ u64 mixed(u64 x) {  // splitmix64
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

__device__ u8 e4m3(float value) {  // to nearest, ties to even, saturating
    u32 bits = __float_as_uint(value);
    u8 sign = (u8)((bits >> 24) & 0x80);
    float size = fabsf(value);
    if (size >= 448.0f) return sign | 0x7E;
    int exponent = (int)((__float_as_uint(size) >> 23) & 0xFF) - 127;
    if (exponent < -6) return sign | (u8)rintf(size * 512.0f);
    int digits = (int)rintf(ldexpf(size, 3 - exponent));
    return sign | (u8)(((exponent + 7) << 3) + (digits - 8));
}

__device__ double number(int type, const void *data, u64 i) {
    switch (type) {
    case R_64F: return ((const double *)data)[i];
    case R_32F: return ((const float *)data)[i];
    case R_32I: return ((const int *)data)[i];
    case R_8I: return ((const signed char *)data)[i];
    case R_16BF: return __uint_as_float((u32)((const u16 *)data)[i] << 16);
    case R_16F: {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(((const u16 *)data)[i]));
        return value;
    }
    default: {
        u8 code = ((const u8 *)data)[i];
        int exponent = (code >> 3) & 15, digits = code & 7;
        float size = exponent ? ldexpf(8 + digits, exponent - 10) : ldexpf(digits, -9);
        return code & 0x80 ? -size : size;
    }
    }
}

// `low` fills the digits that FP64 has more.
__device__ void store(int type, void *data, u64 i, float value, double low) {
    switch (type) {
    case R_64F: ((double *)data)[i] = value * (1 + low); break;
    case R_32F: ((float *)data)[i] = value; break;
    case R_8I: ((signed char *)data)[i] = (signed char)fminf(fmaxf(rintf(value), -127.0f), 127.0f); break;
    case R_16BF: {
        u32 bits = __float_as_uint(value);
        ((u16 *)data)[i] = (u16)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
        break;
    }
    case R_16F: {
        u16 half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
        ((u16 *)data)[i] = half;
        break;
    }
    default: ((u8 *)data)[i] = e4m3(value);
    }
}

extern "C" __global__ void fill(
    long long type, void *data, u64 count, u64 seed, double spread, long long whole, double kept) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        u64 random = mixed(seed * 0xD1342543DE82EF95ull + i);
        float first = ((u32)random + 0.5f) * 2.3283064e-10f, second = (u32)(random >> 32) * 2.3283064e-10f;
        u64 more = mixed(random);
        double low = whole ? 0.0 : (double)(long long)more * 6.5e-27;  // 2^-63 of a float's last digit
        float value;
        if (whole) {
            value = first >= (float)kept ? 0.0f : (float)((long long)(more % (2 * whole + 1)) - whole);
        } else {
            value = (float)spread * sqrtf(-2.0f * __logf(fmaxf(first, 1e-9f))) * __cosf(6.2831853f * second);
        }
        store((int)type, data, i, value, low);
    }
}

extern "C" __global__ void ticks(u64 *counts) {
    u32 sm;
    u64 nanoseconds;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x) return;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    counts[2 * sm] = (u64)clock64();
    counts[2 * sm + 1] = nanoseconds;
}

extern "C" __global__ void hold(u64 nanoseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}

extern "C" __global__ void times(
    long long type, const void *matrix, u64 rows, u64 columns, const double *x, double *y) {
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (u64 column = 0; column < columns; column++) sum += number((int)type, matrix, column * rows + row) * x[column];
    y[row] = sum;
}

extern "C" __global__ void dots(
    long long type, const void *matrix, u64 rows, u64 columns, const double *x, double *y) {
    __shared__ double sums[8];
    double sum = 0;
    for (u64 row = threadIdx.x; row < rows; row += blockDim.x)
        sum += number((int)type, matrix, blockIdx.x * rows + row) * x[row];
    for (int distance = 16; distance; distance /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, distance);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; i++) sum += sums[i];
        y[blockIdx.x] = sum;
    }
}
"""
NAMES = ("fill", "times", "dots", "ticks", "hold")
THREADS = 256  # `dots` adds eight warps' sums
MOST_SMS = 1024  # numbers of SMs have gaps
