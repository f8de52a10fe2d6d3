/* tensor.hh - engine/cuda/tensor.cuh for a host compiler; a part of emulation.hh.
 *
 * Lanes read shared memory one at a time, so that it is still watched, and pass the values to their
 * warp. An asynchronous copy first fills its target with NaN; its data arrive at the wait. This
 * detects overwriting data that others still read, a missing wait, and a read before a barrier. */
#ifndef KVF_TESTS_CUDA_TENSOR_H
#define KVF_TESTS_CUDA_TENSOR_H

namespace emulated
{
struct copy {
    shared_address<uint4> to;
    const void *from; /* NULL: zeros */
};
/* The copies that a lane has begun, in groups. The last group is open. */
struct copies {
    unsigned serial = 0;
    std::vector<std::vector<copy>> group;
};
inline copies &copies_of_lane()
{
    static copies all[1024];
    copies &c = all[current->number];
    if (c.serial != block_serial)
        c.group.assign(1, {});
    c.serial = block_serial;
    return c;
}

/* Returns a half as float. The exponent is 112 too small before the multiplication. Infinity and
 * NaN keep theirs. */
inline float half_of(uint32_t bits)
{
    float size = from_bits<float>((uint64_t)(bits & 0x7fff) << 13) * 0x1p112f;
    uint32_t all = (uint32_t)to_bits(size) | ((bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0);
    return from_bits<float>(all | (bits & 0x8000) << 16);
}

inline const warp_words *rows_of_warp(int line, in_shared<uint4> row)
{
    uint4 piece = row[0];
    return wait_warp_words(line, {{piece.x, piece.y, piece.z, piece.w}});
}
} // namespace emulated

inline void copy_piece(in_shared<uint4> to, const void *from, bool there)
{
    if (there && (uintptr_t)from % 16 != 0)
        emulated::fault("a piece off its boundary to", to.s->name, to.at, nullptr,
                        __builtin_return_address(0));
    emulated::copies_of_lane().group.back().push_back({to, there ? from : nullptr});
    to[0] = uint4{~0u, ~0u, ~0u, ~0u};
}
inline void copies_group()
{
    emulated::copies_of_lane().group.push_back({});
}
template <int LEFT> void copies_wait()
{
    auto &group = emulated::copies_of_lane().group; /* the last group is still open */
    while (group.size() > LEFT + 1) {
        for (const emulated::copy &c : group.front()) {
            uint4 piece = {0, 0, 0, 0};
            if (c.from)
                memcpy(&piece, c.from, sizeof piece);
            c.to[0] = piece;
        }
        group.erase(group.begin());
    }
}

inline uint2 half_piece(in_shared<uint4> a, unsigned i)
{
    uint4 v = a[i / 2];
    return i % 2 ? uint2{v.z, v.w} : uint2{v.x, v.y};
}
namespace emulated
{
inline void on_boundary(const shared_address<float> &a, unsigned i)
{
    if (!a.s->fours || (a.at + i) % 4 != 0)
        fault("four off their boundary in", a.s->name, a.at + i, nullptr,
              __builtin_return_address(0));
}
} // namespace emulated
inline void shared_four(in_shared<float> a, unsigned i, float x[4])
{
    emulated::on_boundary(a, i);
    for (unsigned k = 0; k < 4; k++)
        x[k] = a[i + k];
}
inline void shared_set_four(in_shared<float> a, unsigned i, const float x[4])
{
    emulated::on_boundary(a, i);
    for (unsigned k = 0; k < 4; k++)
        a[i + k] = x[k];
}

inline void load_matrices(uint32_t m[4], in_shared<uint4> row, int line = __builtin_LINE())
{
    const emulated::warp_words *w = emulated::rows_of_warp(line, row);
    unsigned lane = emulated::current->number % 32;
    for (unsigned k = 0; k < 4; k++)
        m[k] = w[8 * k + lane / 4].of[lane % 4];
}
inline void load_matrices_turned(uint32_t m[4], in_shared<uint4> row, int line = __builtin_LINE())
{
    const emulated::warp_words *w = emulated::rows_of_warp(line, row);
    unsigned lane = emulated::current->number % 32, column = lane / 4;
    for (unsigned k = 0; k < 4; k++) {
        m[k] = 0;
        for (unsigned i = 0; i < 2; i++) {
            uint32_t word = w[8 * k + lane % 4 * 2 + i].of[column / 2];
            m[k] |= (word >> 16 * (column % 2) & 0xffff) << 16 * i;
        }
    }
}

namespace emulated
{
inline float bf16_of(uint32_t bits)
{
    return from_bits<float>((uint64_t)bits << 16);
}
inline uint32_t to_bf16_bits(float f)
{
    uint32_t u = (uint32_t)to_bits(f);
    return f == f ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff;
}

/* Adds 16 products in order to each of four sums. A lane has two rows of A and two columns of B;
 * four lanes share each of them, with four numbers per lane in either half. */
inline void multiply_rows(float c[4], const warp_words *row, const warp_words *column)
{
    for (int k = 0; k < 4; k += 2)
        for (int j = 0; j < 4; j++)
            for (int i = k; i < k + 2; i++) {
                float a0 = from_bits<float>(row[j].of[k + i]);
                float a1 = from_bits<float>(row[j].of[k + i + 2]);
                float b0 = from_bits<float>(column[j].of[8 + i]);
                float b1 = from_bits<float>(column[j + 4].of[8 + i]);
                c[0] = fmaf(a0, b0, c[0]);
                c[1] = fmaf(a0, b1, c[1]);
                c[2] = fmaf(a1, b0, c[2]);
                c[3] = fmaf(a1, b1, c[3]);
            }
}

/* C += A B with halves that `of` converts. The lane that owns a half converts it once. */
template <class F>
void multiply_by(int line, float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, F of)
{
    const uint32_t words[] = {a[0], a[1], a[2], a[3], b0, b1};
    warp_words mine;
    for (int i = 0; i < 6; i++) {
        mine.of[2 * i] = (uint32_t)to_bits(of(words[i] & 0xffff));
        mine.of[2 * i + 1] = (uint32_t)to_bits(of(words[i] >> 16));
    }
    const warp_words *all = wait_warp_words(line, mine);
    unsigned lane = current->number % 32;
    multiply_rows(c, all + lane / 4 * 4, all + lane % 4 * 8);
}
} // namespace emulated

inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                     int line = __builtin_LINE())
{
    emulated::multiply_by(line, c, a, b0, b1, [](uint32_t h) { return emulated::half_of(h); });
}
inline void multiply_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                          int line = __builtin_LINE())
{
    emulated::multiply_by(line, c, a, b0, b1, [](uint32_t h) { return emulated::bf16_of(h); });
}

inline float power_of_two(float x)
{
    return exp2f(x);
}
inline uint32_t two_halves(float low, float high)
{
    return float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}
inline uint32_t two_bf16(float low, float high)
{
    return emulated::to_bf16_bits(low) | emulated::to_bf16_bits(high) << 16;
}

#endif
