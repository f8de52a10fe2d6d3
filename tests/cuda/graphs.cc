/* graphs.cc - launches and graphs of the emulated device.  A kernel's arguments are copied when it
 * is launched, made a node or told anew, as by the run time: what the program forgets to tell
 * stays as it was. */
#include "tests/cuda/emulation.hh"

#include <algorithm>
#include <map>
#include <memory>

#include "tests/cuda/emulation_c.h"

namespace emulated
{
static std::map<const void *, known_kernel> kernels;
long n_calls, n_copies;
static long chain;
static long n_graphs, n_told, n_replays;

void know(const void *kernel, const known_kernel &how)
{
    kernels.emplace(kernel, how);
}

struct packed_call {
    const void *kernel;
    known_kernel how;
    dim3 grid, block;
    size_t shared;
    std::vector<std::vector<char>> arg;
};

enum kind { KERNEL, COPY, ZERO };

struct node {
    kind what;
    packed_call call;
    void *to;
    const void *from;
    size_t bytes;
    cudaMemcpyKind way;
    size_t place;              /* in the list */
    std::vector<size_t> after; /* the places of those that it waits for */
    bool early;                /* by itself */
};

struct graph {
    std::vector<std::unique_ptr<node>> all;
};

struct exec {
    std::vector<node> all; /* copies */
    std::vector<size_t> order;
    long chain; /* most nodes of which each waits for the one before it */
};

static bool pack(packed_call *c, const void *kernel, dim3 grid, dim3 block, size_t shared,
                 void *const *arg)
{
    auto it = kernels.find(kernel);
    if (it == kernels.end())
        return false;
    *c = {kernel, it->second, grid, block, shared, {}};
    for (size_t i = 0; i < c->how.size.size(); i++)
        c->arg.emplace_back((char *)arg[i], (char *)arg[i] + c->how.size[i]);
    return true;
}

/* early: it may have started before what is before it has ended, and has to wait by itself. */
static void run(const packed_call &c, bool early = false)
{
    auto own = std::make_shared<packed_call>(c);
    launch(c.how.name, c.grid, c.block, c.shared, [own, early] {
        char *at[32]; /* a lane's call takes copies of what they point to */
        for (size_t i = 0; i < own->arg.size(); i++)
            at[i] = own->arg[i].data();
        current->waited = false;
        own->how.call(own->kernel, at);
        if (early && !current->waited)
            fault("a lane that does not wait for what came before", own->how.name, 0, NULL,
                  __builtin_return_address(0));
    });
}

static cudaError_t add(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                       size_t n_after, const node &what)
{
    node own = what;
    own.place = g->all.size();
    for (size_t i = 0; i < n_after; i++) {
        size_t at = after[i]->place;
        if (at >= g->all.size() || g->all[at].get() != after[i])
            return cudaErrorUnknown; /* of another graph */
        own.after.push_back(at);
    }
    g->all.emplace_back(new node(own));
    *n = g->all.back().get();
    return cudaSuccess;
}

/* An order that the nodes' waiting leaves open: of those that may run, the one that was added last,
 * so that branches run against the order in which they were written down. */
static std::vector<size_t> order_of(const exec &x)
{
    std::vector<size_t> order;
    std::vector<bool> done(x.all.size());
    while (order.size() < x.all.size()) {
        size_t i = x.all.size();
        bool ready = false;
        while (!ready && i-- > 0) {
            ready = !done[i];
            for (size_t before : x.all[i].after)
                ready = ready && done[before];
        }
        done[i] = true;
        order.push_back(i);
    }
    return order;
}

static long chain_of(const exec &x)
{
    std::vector<long> end(x.all.size());
    long most = 0;
    for (size_t i = 0; i < x.all.size(); i++) { /* what a node waits for was added before it */
        for (size_t before : x.all[i].after)
            end[i] = std::max(end[i], end[before]);
        most = std::max(most, ++end[i]);
    }
    return most;
}

static bool pack_node(node *n, const cudaKernelNodeParams *p)
{
    n->what = KERNEL;
    return pack(&n->call, p->func, p->gridDim, p->blockDim, p->sharedMemBytes, p->kernelParams);
}

static node zero_node(const cudaMemsetParams *p)
{
    node n = {};
    n.what = ZERO;
    n.to = p->dst;
    n.bytes = p->elementSize * p->width * p->height;
    return n;
}

static node copy_node(void *to, const void *from, size_t bytes, cudaMemcpyKind way)
{
    node n = {};
    n.what = COPY;
    n.to = to;
    n.from = from;
    n.bytes = bytes;
    n.way = way;
    return n;
}

/* Node n of the graph that x was made of is another now; it stays of its kind. */
static cudaError_t tell(cudaGraphExec_t x, cudaGraphNode_t n, const node &what)
{
    n_told++;
    n_calls++;
    node *own = &x->all[n->place];
    if (own->what != what.what || (what.what == KERNEL && own->call.kernel != what.call.kernel)
        || (what.what == COPY && own->way != what.way))
        return cudaErrorUnknown;
    node now = what;
    now.place = own->place;
    now.after = own->after;
    now.early = own->early;
    *own = now;
    return cudaSuccess;
}
} // namespace emulated

using namespace emulated;

long emulation_calls(void)
{
    return n_calls;
}

long emulation_chain(void)
{
    return chain;
}

long emulation_copies(void)
{
    return n_copies;
}

long emulation_graphs(void)
{
    return n_graphs;
}

long emulation_told(void)
{
    return n_told;
}

long emulation_replays(void)
{
    return n_replays;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t)
{
    packed_call c;
    n_calls++;
    if (!pack(&c, kernel, grid, block, shared, args))
        return cudaErrorUnknown;
    run(c);
    return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned)
{
    *g = new graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                                   size_t n_after, const cudaKernelNodeParams *p)
{
    node made = {};
    return pack_node(&made, p) ? add(n, g, after, n_after, made) : cudaErrorUnknown;
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *n, cudaGraph_t g,
                                     const cudaGraphNode_t *after, size_t n_after, void *to,
                                     const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return add(n, g, after, n_after, copy_node(to, from, bytes, kind));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                                   size_t n_after, const cudaMemsetParams *p)
{
    return add(n, g, after, n_after, zero_node(p));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *how,
                                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        node *d = to[i];
        if (g->all[d->place].get() != d || from[i]->place >= d->place)
            return cudaErrorUnknown;
        bool early = how && how[i].type == cudaGraphDependencyTypeProgrammatic;
        if (early && (from[i]->what != KERNEL || d->what != KERNEL))
            return cudaErrorUnknown;
        d->after.push_back(from[i]->place);
        d->early = d->early || early;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
    if (!asked("graphs", 1))
        return cudaErrorUnknown;
    *x = new exec;
    for (const auto &n : g->all)
        (*x)->all.push_back(*n);
    (*x)->order = order_of(**x);
    (*x)->chain = chain_of(**x);
    n_graphs++;
    return cudaGetLastError();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    delete x;
    return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t n,
                                             const cudaKernelNodeParams *p)
{
    node now = {};
    return pack_node(&now, p) ? tell(x, n, now) : cudaErrorUnknown;
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t n, void *to,
                                               const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return tell(x, n, copy_node(to, from, bytes, kind));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t n,
                                             const cudaMemsetParams *p)
{
    return tell(x, n, zero_node(p));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    cudaError_t e = cudaGetLastError();
    long calls = ++n_calls;
    n_replays++;
    chain = x->chain;
    for (size_t i : x->order) {
        const node &n = x->all[i];
        if (n.what == KERNEL)
            run(n.call, n.early);
        else if (n.what == COPY)
            e = cudaMemcpyAsync(n.to, n.from, n.bytes, n.way, s);
        else
            e = cudaMemsetAsync(n.to, 0, n.bytes, s);
    }
    n_calls = calls; /* the driver was called once */
    return e;
}
