/* graphs.cc - launches and graphs of the emulated device.  A kernel's arguments are copied when it
 * is launched, made a node or told anew, as by the run time: what the program forgets to tell
 * stays as it was. */
#include "tests/cuda/emulation.hh"

#include <map>
#include <memory>

#include "tests/cuda/emulation_c.h"

namespace emulated
{
static std::map<const void *, known_kernel> kernels;
long n_calls;
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
    size_t place; /* in the chain */
};

struct graph {
    std::vector<std::unique_ptr<node>> chain;
};

struct exec {
    std::vector<node> chain; /* copies */
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

static void run(const packed_call &c)
{
    auto own = std::make_shared<packed_call>(c);
    launch(c.how.name, c.grid, c.block, c.shared, [own] {
        std::vector<std::vector<char>> mine = own->arg; /* a kernel may change its arguments */
        char *at[32];
        for (size_t i = 0; i < mine.size(); i++)
            at[i] = mine[i].data();
        own->how.call(own->kernel, at);
    });
}

static cudaError_t add(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                       size_t n_after, const node &what)
{
    size_t place = g->chain.size();
    bool chain = place == 0 ? n_after == 0 : n_after == 1 && *after == g->chain.back().get();
    if (!chain)
        return cudaErrorUnknown; /* the emulation keeps one order alone */
    g->chain.emplace_back(new node(what));
    *n = g->chain.back().get();
    (*n)->place = place;
    return cudaSuccess;
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
    node *own = &x->chain[n->place];
    if (own->what != what.what || (what.what == KERNEL && own->call.kernel != what.call.kernel)
        || (what.what == COPY && own->way != what.way))
        return cudaErrorUnknown;
    *own = what;
    own->place = n->place;
    return cudaSuccess;
}
} // namespace emulated

using namespace emulated;

long emulation_calls(void)
{
    return n_calls;
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

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
    if (!asked("graphs", 1))
        return cudaErrorUnknown;
    *x = new exec;
    for (const auto &n : g->chain)
        (*x)->chain.push_back(*n);
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
    for (const node &n : x->chain)
        if (n.what == KERNEL)
            run(n.call);
        else if (n.what == COPY)
            e = cudaMemcpyAsync(n.to, n.from, n.bytes, n.way, s);
        else
            e = cudaMemsetAsync(n.to, 0, n.bytes, s);
    n_calls = calls; /* the driver was called once */
    return e;
}
