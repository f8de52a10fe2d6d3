/* watched.hh - shared memory that sees who reads and writes it; a part of emulation.hh.
 *
 * Between two barriers of a block lies an epoch.  What was written before it and has been read by
 * two warps in it is open to all: who reads it again is right and tells nothing new, since every
 * write until the next barrier is a race.  So is open to a warp what two of its lanes have read
 * since its last barrier.  Epochs of all blocks, and what lies between barriers of their warps,
 * have numbers of their own. */
#ifndef KVF_TESTS_CUDA_WATCHED_H
#define KVF_TESTS_CUDA_WATCHED_H

namespace emulated
{
/* When an access was. */
struct clock {
    unsigned epoch;
    unsigned lane : 10, warp : 22; /* barriers that its warp had passed */
};

/* The history of one element; what is older than the block counts for nothing. */
struct cell {
    bool atomic = false;        /* the write */
    unsigned short n_reads = 0; /* since the write, as many as tell a race */
    clock write = {0, 0, 0};
    clock reads[2] = {};
};

extern unsigned epoch, span_of_warp; /* the numbers of what is now */
void fault(const char *what, const char *array, size_t index, const clock *other, void *at);
/* To whom it is open then: a number as above, or 0. */
unsigned on_read(cell *c, const char *array, size_t i, bool atomic, void *at);
void on_write(cell *c, const char *array, size_t i, bool atomic, void *at);

extern unsigned launch_serial; /* differs for each launch */
extern size_t static_bytes;    /* of arrays that the launch has used so far */
template <class T> struct shared_store {
    const char *name;
    size_t n;
    std::vector<T> value;
    std::vector<unsigned> open; /* to whom each element is */
    std::vector<cell> cells;
    bool fours; /* begins where four of its elements may be read at once */
    unsigned launch = 0;
    shared_store(const char *own, size_t size, bool f = true)
        : name(own), n(size), value(size), open(size), cells(size), fours(f)
    {
    }
    bool is_open(size_t i) const { return i < n && (open[i] == epoch || open[i] == span_of_warp); }
    __attribute__((noinline)) T read(size_t i)
    {
        if (i >= n) {
            fault("read beyond", name, i, nullptr, __builtin_return_address(0));
            return T();
        }
        open[i] = on_read(&cells[i], name, i, false, __builtin_return_address(0));
        return value[i];
    }
    __attribute__((noinline)) T write(size_t i, T v)
    {
        if (i >= n) {
            fault("write beyond", name, i, nullptr, __builtin_return_address(0));
            return v;
        }
        on_write(&cells[i], name, i, false, __builtin_return_address(0));
        open[i] = 0;
        return value[i] = v;
    }
    template <class F> __attribute__((noinline)) T change(size_t i, F by)
    {
        if (i >= n) {
            fault("atomic beyond", name, i, nullptr, __builtin_return_address(0));
            return T();
        }
        on_read(&cells[i], name, i, true, __builtin_return_address(0));
        on_write(&cells[i], name, i, true, __builtin_return_address(0));
        T old = value[i];
        open[i] = 0;
        value[i] = by(old);
        return old;
    }
};

template <class T> struct shared_address;

/* One element; reading and writing it is seen. */
template <class T> struct shared_ref {
    shared_store<T> *s;
    size_t i;
    operator T() const { return s->is_open(i) ? s->value[i] : s->read(i); }
    T operator=(T v) const { return s->write(i, v); }
    T operator=(const shared_ref &o) const { return *this = (T)o; }
    T operator+=(T v) const { return *this = (T) * this + v; }
    T operator*=(T v) const { return *this = (T) * this * v; }
    shared_address<T> operator&() const;
};

template <class T> struct shared_address {
    shared_store<T> *s;
    size_t at;
    shared_ref<T> operator[](size_t i) const { return {s, at + i}; }
    shared_address operator+(size_t i) const { return {s, at + i}; }
    shared_ref<T> operator*() const { return {s, at}; }
};

template <class T> shared_address<T> shared_ref<T>::operator&() const
{
    return {s, i};
}

/* A static array: lives as long as the program, its history as long as a block. */
template <class T, size_t N> struct shared_array {
    shared_store<T> s;
    shared_array(const char *name, bool fours) : s(name, N, fours) {}
    shared_ref<T> operator[](size_t i) { return {used(), i}; }
    operator shared_address<T>() { return {used(), 0}; }
    shared_address<T> operator+(size_t i) { return {used(), i}; }

  private:
    shared_store<T> *used()
    {
        static_bytes += s.launch != launch_serial ? N * sizeof(T) : 0;
        s.launch = launch_serial;
        return &s;
    }
};

extern size_t dynamic_bytes;
template <class T> shared_address<T> dynamic(const char *name)
{
    static shared_store<T> s(name, 0);
    size_t n = dynamic_bytes / sizeof(T);
    if (s.n != n)
        s = shared_store<T>(name, n);
    return {&s, 0};
}

/* The value that an atomic operation replaces. */
template <class T, class F> T atomic(T *p, F change)
{
    T old = *p;
    *p = change(old);
    return old;
}
template <class T, class F> T atomic(shared_address<T> p, F change)
{
    return p.s->change(p.at, change);
}
} // namespace emulated

#endif
