/* tensor.cuh - products of small matrices with the tensor cores of a warp, and loads for them.
 *
 * The 32 lanes of a warp share a matrix. With q = lane / 4 and c = lane % 4, a lane has
 *     of A, 16 x 16 halves:  rows q, q + 8, q, q + 8, columns 2c, 2c, 2c + 8, 2c + 8 (each with the
 *                            next one, which form one word);
 *     of B, 16 x 8 halves:   rows 2c, 2c + 8 (each with the next one) of column q;
 *     of C, 16 x 8 floats:   columns 2c, 2c + 1 of row q, then of row q + 8.
 * A half is an f16 or a bf16. A piece is 16 bytes, eight halves of one row of a matrix in shared
 * memory.
 *
 * Without nvcc the emulation defines the same names first (tests/cuda/tensor.hh). */
#ifndef KVF_ENGINE_CUDA_TENSOR_CUH
#define KVF_ENGINE_CUDA_TENSOR_CUH

#include "engine/cuda/device.cuh"

#ifdef __CUDACC__

DEVICE unsigned shared_at(const uint4 *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Starts to copy a piece from device memory, aligned to 16 bytes; writes zeros if `there` is false.
 * The copies of a lane between two calls of copies_group form a group. */
DEVICE void copy_piece(in_shared<uint4> to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
DEVICE void copies_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for all groups of this lane except the last LEFT. Other lanes see the data after a
 * barrier. */
template <int LEFT> DEVICE void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Returns half i of the pieces at a. */
DEVICE uint2 half_piece(in_shared<uint4> a, unsigned i)
{
    return ((const uint2 *)a)[i];
}

/* Loads four floats from a[i] on; i is a multiple of four and a is 16-byte aligned. */
DEVICE void shared_four(in_shared<float> a, unsigned i, float x[4])
{
    float4 v = *(const float4 *)(a + i);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}
DEVICE void shared_set_four(in_shared<float> a, unsigned i, const float x[4])
{
    *(float4 *)(a + i) = make_float4(x[0], x[1], x[2], x[3]);
}

/* Loads four matrices of 8 x 8 halves; lane i passes the address of row i % 8 of matrix i / 8. m[k]
 * is the word of matrix k in row q, columns 2c and 2c + 1. The turned version gives the halves in
 * rows 2c and 2c + 1, column q. */
DEVICE void load_matrices(uint32_t m[4], in_shared<uint4> row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_at(row)));
}
DEVICE void load_matrices_turned(uint32_t m[4], in_shared<uint4> row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_at(row)));
}

/* C += A B, sums in f32. */
DEVICE void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* C += A B for bf16. */
DEVICE void multiply_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Returns 2^x with a relative error of 2^-22; 1 for 0 and 0 for -INFINITY. */
DEVICE float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Rounds both to f16; the first is in the lower half. */
DEVICE uint32_t two_halves(float low, float high)
{
    uint32_t w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}
/* Rounds both to bf16; the first is in the lower half. */
DEVICE uint32_t two_bf16(float low, float high)
{
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}

#endif

enum { FOUR = 4 };

/* Loads numbers 4 i .. 4 i + 3 of a tile. */
DEVICE void four_of(in_shared<uint4> tile, unsigned i, float *x, uint16_t)
{
    uint2 v = half_piece(tile, i);
    x[0] = from_half((uint16_t)v.x);
    x[1] = from_half((uint16_t)(v.x >> 16));
    x[2] = from_half((uint16_t)v.y);
    x[3] = from_half((uint16_t)(v.y >> 16));
}
DEVICE void four_of(in_shared<uint4> tile, unsigned i, float *x, float)
{
    uint4 v = tile[i];
    x[0] = __uint_as_float(v.x);
    x[1] = __uint_as_float(v.y);
    x[2] = __uint_as_float(v.z);
    x[3] = __uint_as_float(v.w);
}

#endif
