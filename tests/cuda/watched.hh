/* watched.hh - shared memory that records reads and writes; a part of emulation.hh.
 *
 * An epoch is the interval between two barriers of a block. If an element was written before the
 * epoch and two warps have read it in the epoch, it is open to all lanes: further reads are correct
 * and need no record, because any write before the next barrier is a race. In the same way, an
 * element is open to a warp if two of its lanes have read it since the warp's last barrier. Epochs
 * of all blocks and intervals between warp barriers have unique numbers. */
#ifndef KVF_TESTS_CUDA_WATCHED_H
#define KVF_TESTS_CUDA_WATCHED_H

namespace emulated
{
/* The time of an access. */
struct clock {
    unsigned epoch;
    unsigned lane : 10, warp : 22; /* barriers passed by the lane's warp */
};

/* The access history of one element. Accesses by earlier blocks are ignored. */
struct cell {
    bool atomic = false;        /* the last write was atomic */
    unsigned short n_reads = 0; /* kept reads since the write */
    clock write = {0, 0, 0};
    clock reads[2] = {};
};

extern unsigned epoch, span_of_warp; /* numbers of the current intervals */
void fault(const char *what, const char *array, size_t index, const clock *other, void *at);
/* on_read() returns to whom the element is then open: the number of an interval, or 0 for no
 * one. */
unsigned on_read(cell *c, const char *array, size_t i, bool atomic, void *at);
void on_write(cell *c, const char *array, size_t i, bool atomic, void *at);

extern unsigned launch_serial; /* unique for each launch */
extern size_t static_bytes;    /* bytes of static arrays used by the launch so far */
template <class T> struct shared_store {
    const char *name;
    size_t n;
    std::vector<T> value;
    std::vector<unsigned> open; /* interval in which each element is open */
    std::vector<cell> cells;
    bool fours; /* aligned for reads of four elements at once */
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

/* A reference to one element that records reads and writes. */
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

/* A static array. It exists for the whole program; its history applies to one block. */
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

/* Applies an atomic operation and returns the old value. */
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
