/* tensor.hh - engine/cuda/tensor.cuh for a host compiler; a part of emulation.hh.
 *
 * Lanes look at shared memory one by one, so that it is watched as ever, and give what they saw to
 * their warp.  A copy that has begun leaves NaN behind, and what it brings comes when it is waited
 * for: who writes over what others still read, who does not wait and who reads before a barrier
 * are all found. */
#ifndef KVF_TESTS_CUDA_TENSOR_H
#define KVF_TESTS_CUDA_TENSOR_H

namespace emulated
{
struct copy {
    shared_address<uint4> to;
    const void *from; /* NULL: zeros */
};
/* The copies that a lane has begun, in groups of which the last is open. */
struct copies {
    unsigned serial = 0;
    std::vector<std::vector<copy>> group;
};
inline copies &copies_of_lane()
{
    static copies all[1024];
    copies &c = all[current->now.lane];
    if (c.serial != block_serial)
        c.group.assign(1, {});
    c.serial = block_serial;
    return c;
}

/* What each lane of the warp gives, N words. */
template <int N> struct warp_words {
    uint32_t of[32][N];
};
template <int N> warp_words<N> exchange(int line, const uint32_t *mine)
{
    warp_words<N> w;
    for (int k = 0; k < N; k += 2) {
        const uint64_t *all = wait_warp(line, mine[k] | (uint64_t)mine[k + 1] << 32);
        for (int i = 0; i < 32; i++) {
            w.of[i][k] = (uint32_t)all[i];
            w.of[i][k + 1] = (uint32_t)(all[i] >> 32);
        }
    }
    return w;
}

inline float half_of(uint32_t word, int which)
{
    static const std::vector<float> known = [] {
        std::vector<float> f(1 << 16);
        for (unsigned i = 0; i < f.size(); i++)
            f[i] = half_to_float((uint16_t)i);
        return f;
    }();
    return known[word >> 16 * which & 0xffff];
}

inline warp_words<4> rows_of_warp(int line, in_shared<uint4> row)
{
    uint4 piece = row[0];
    const uint32_t words[] = {piece.x, piece.y, piece.z, piece.w};
    return exchange<4>(line, words);
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
    auto &group = emulated::copies_of_lane().group; /* the last is still open */
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
    emulated::warp_words<4> w = emulated::rows_of_warp(line, row);
    unsigned lane = emulated::current->now.lane % 32;
    for (unsigned k = 0; k < 4; k++)
        m[k] = w.of[8 * k + lane / 4][lane % 4];
}
inline void load_matrices_turned(uint32_t m[4], in_shared<uint4> row, int line = __builtin_LINE())
{
    emulated::warp_words<4> w = emulated::rows_of_warp(line, row);
    unsigned lane = emulated::current->now.lane % 32, column = lane / 4;
    for (unsigned k = 0; k < 4; k++) {
        m[k] = 0;
        for (unsigned i = 0; i < 2; i++) {
            uint32_t word = w.of[8 * k + lane % 4 * 2 + i][column / 2];
            m[k] |= (word >> 16 * (column % 2) & 0xffff) << 16 * i;
        }
    }
}

namespace emulated
{
inline float bf16_of(uint32_t word, int which)
{
    return from_bits<float>((uint64_t)(word >> 16 * which & 0xffff) << 16);
}
inline uint32_t to_bf16_bits(float f)
{
    uint32_t u = (uint32_t)to_bits(f);
    return f == f ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff;
}

/* C += A B with halves that `of` reads. */
template <class F>
void multiply_by(int line, float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, F of)
{
    const uint32_t both[] = {b0, b1};
    warp_words<4> A = exchange<4>(line, a);
    warp_words<2> B = exchange<2>(line, both);
    int lane = (int)(current->now.lane % 32);
    for (int i = 0; i < 4; i++) {
        int column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            uint32_t x = A.of[lane / 4 * 4 + k % 8 / 2][i / 2 + k / 8 * 2];
            uint32_t y = B.of[column * 4 + k % 8 / 2][k / 8];
            c[i] = fmaf(of(x, k % 2), of(y, k % 2), c[i]);
        }
    }
}
} // namespace emulated

inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                     int line = __builtin_LINE())
{
    emulated::multiply_by(line, c, a, b0, b1, emulated::half_of);
}
inline void multiply_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                          int line = __builtin_LINE())
{
    emulated::multiply_by(line, c, a, b0, b1, emulated::bf16_of);
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
