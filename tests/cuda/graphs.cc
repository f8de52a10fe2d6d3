/* graphs.cc - launches and graphs of the emulated device. A kernel's arguments are copied at a
 * launch, when a node is created and when it is updated, as in CUDA. An argument that the program
 * forgets to update therefore keeps its old value. */
#include "tests/cuda/emulation.hh"

#include <algorithm>
#include <climits>
#include <map>
#include <memory>

#include "tests/cuda/emulation_c.h"

namespace emulated
{
static std::map<const void *, known_kernel> kernels;
long n_calls, n_copies;
static long chain, early, first;
static long n_graphs, n_told, n_replays;

void know(const void *kernel, const known_kernel &how)
{
    size_t bytes = 0;
    if (!kernels.emplace(kernel, how).second)
        return;
    for (size_t size : how.size)
        bytes += (size + 15) / 16 * 16;
    if (bytes > MOST_ARG_BYTES)
        fault("more arguments than a device takes for", how.name, bytes, NULL, NULL);
}

struct packed_call {
    const void *kernel;
    known_kernel how;
    dim3 grid, block;
    size_t shared, allowed;
    std::vector<std::vector<char>> arg;
};

enum kind { KERNEL, COPY, ZERO, EVENT };

struct node {
    kind what;
    packed_call call;
    void *to;
    const void *from;
    size_t bytes;
    cudaMemcpyKind way;
    cudaEvent_t event;
    size_t place;              /* index in the graph */
    std::vector<size_t> after; /* indices of the nodes that it depends on */
    bool early;                /* the node may start early */
    int priority;              /* a smaller number runs sooner; 0 by default */
};

struct graph {
    std::vector<std::unique_ptr<node>> all;
};

struct exec {
    std::vector<node> all; /* copies of the nodes */
    bool mixed;            /* the next run uses a random order */
    bool ranked;           /* priorities are checked */
    long chain;            /* length of the longest chain of dependent nodes */
};

static bool pack(packed_call *c, const void *kernel, dim3 grid, dim3 block, size_t shared,
                 void *const *arg)
{
    auto it = kernels.find(kernel);
    if (it == kernels.end())
        return false;
    *c = {kernel, it->second, grid, block, shared, allowed_of(kernel), {}};
    for (size_t i = 0; i < c->how.size.size(); i++)
        c->arg.emplace_back((char *)arg[i], (char *)arg[i] + c->how.size[i]);
    return true;
}

/* Runs a kernel. early: the kernel may start before its predecessor ends, so each lane must
 * wait. */
static void run(const packed_call &c, bool early = false)
{
    auto own = std::make_shared<packed_call>(c);
    std::vector<char *> at; /* each lane gets copies of the arguments */
    for (auto &arg : own->arg)
        at.push_back(arg.data());
    auto lane = [own, at, early] {
        current->waited = false;
        own->how.call(own->kernel, at.data());
        if (early && !current->waited)
            fault("a lane that does not wait for what came before", own->how.name, 0, NULL,
                  __builtin_return_address(0));
    };
    launch(c.how.name, c.grid, c.block, c.shared, lane, c.allowed);
}

static cudaError_t add(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                       size_t n_after, const node &what)
{
    node own = what;
    own.place = g->all.size();
    for (size_t i = 0; i < n_after; i++) {
        size_t at = after[i]->place;
        if (at >= g->all.size() || g->all[at].get() != after[i])
            return said(cudaErrorInvalidValue); /* a node of another graph */
        if (std::count(own.after.begin(), own.after.end(), at) > 0)
            return said(cudaErrorInvalidValue);
        own.after.push_back(at);
    }
    g->all.emplace_back(new node(own));
    *n = g->all.back().get();
    return cudaSuccess;
}

/* Returns for each node the first event that depends on it or is it. The number of nodes means no
 * event. */
static std::vector<size_t> events_of(const exec &x)
{
    std::vector<size_t> of(x.all.size(), x.all.size());
    for (size_t i = x.all.size(); i-- > 0;) { /* a node's dependencies precede it */
        of[i] = x.all[i].what == EVENT ? std::min(of[i], i) : of[i];
        for (size_t before : x.all[i].after)
            of[before] = std::min(of[before], of[i]);
    }
    return of;
}

/* Returns an execution order that respects the dependencies. Work for the first event runs first,
 * then work for the next event. Of the nodes that can run, the last one added runs first, so that
 * branches run in reverse order of creation. With `mixed`, a random one runs. */
static std::vector<size_t> order_of(const exec &x, bool mixed)
{
    std::vector<size_t> event = events_of(x);
    std::vector<size_t> order, ready, left;
    std::vector<std::vector<size_t>> behind(x.all.size());
    for (size_t i = 0; i < x.all.size(); i++) {
        left.push_back(x.all[i].after.size());
        for (size_t before : x.all[i].after)
            behind[before].push_back(i);
        if (left[i] == 0)
            ready.push_back(i);
    }
    while (!ready.empty()) {
        size_t first = x.all.size();
        for (size_t i : ready)
            first = std::min(first, event[i]);
        auto end = std::partition(ready.begin(), ready.end(),
                                  [&](size_t i) { return event[i] == first; });
        auto last = std::max_element(ready.begin(), end);
        auto at = mixed ? ready.begin() + draw((unsigned)(end - ready.begin())) : last;
        size_t i = *at;
        ready.erase(at);
        order.push_back(i);
        for (size_t next : behind[i])
            if (--left[next] == 0)
                ready.push_back(next);
    }
    return order;
}

static long chain_of(const exec &x)
{
    std::vector<long> end(x.all.size());
    long most = 0;
    for (size_t i = 0; i < x.all.size(); i++) { /* a node's dependencies precede it */
        for (size_t before : x.all[i].after)
            end[i] = std::max(end[i], end[before]);
        most = std::max(most, ++end[i]);
    }
    return most;
}

/* Reports a fault if a kernel depends on a kernel of lower priority. It would have to wait as long
 * as that kernel. */
static void check_priorities(const exec &x)
{
    std::vector<int> last(x.all.size()); /* lowest priority among a node and its dependencies */
    for (size_t i = 0; i < x.all.size(); i++) {
        const node &n = x.all[i];
        last[i] = n.what == KERNEL ? n.priority : INT_MIN;
        for (size_t before : n.after) {
            if (n.what == KERNEL && last[before] > n.priority)
                fault("a kernel that waits for one that comes later:", n.call.how.name, i, NULL,
                      NULL);
            last[i] = std::max(last[i], last[before]);
        }
    }
}

static bool pack_node(node *n, const cudaKernelNodeParams *p)
{
    n->what = KERNEL;
    if (p->sharedMemBytes > allowed_of(p->func))
        return false;
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

/* Updates node n of an instantiated graph. Its kind must not change. */
static cudaError_t tell(cudaGraphExec_t x, cudaGraphNode_t n, const node &what)
{
    n_told++;
    n_calls++;
    node *own = &x->all[n->place];
    if (!asked("told", 1) || own->what != what.what
        || (what.what == KERNEL && own->call.kernel != what.call.kernel)
        || (what.what == COPY && own->way != what.way)
        || (what.what == ZERO && own->bytes != what.bytes)) /* a real driver may reject these */
        return said(cudaErrorInvalidValue);
    node now = what;
    now.place = own->place;
    now.after = own->after;
    now.early = own->early;
    now.priority = own->priority;
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

long emulation_early(void)
{
    return early;
}

long emulation_first(void)
{
    return first;
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
    return pack_node(&made, p) ? add(n, g, after, n_after, made) : said(cudaErrorInvalidValue);
}

/* Checks copies and memsets for graphs. An invalid one is a fault, because the fallback to single
 * launches would hide it. */
static bool takes(const node &n)
{
    if (n.what == COPY)
        return copy_is_right(n.to, n.bytes, n.from, n.bytes, n.bytes, 1, n.way, true);
    if (n.bytes == 0 || !in_device(n.to, n.bytes))
        fault("zeros in what is no memory of the device", "of", n.bytes, NULL, NULL);
    return n.bytes > 0 && in_device(n.to, n.bytes);
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *n, cudaGraph_t g,
                                     const cudaGraphNode_t *after, size_t n_after, void *to,
                                     const void *from, size_t bytes, cudaMemcpyKind kind)
{
    node made = copy_node(to, from, bytes, kind);
    return takes(made) ? add(n, g, after, n_after, made) : said(cudaErrorInvalidValue);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                                   size_t n_after, const cudaMemsetParams *p)
{
    node made = zero_node(p);
    return takes(made) ? add(n, g, after, n_after, made) : said(cudaErrorInvalidValue);
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *n, cudaGraph_t g,
                                        const cudaGraphNode_t *after, size_t n_after, cudaEvent_t e)
{
    node made = {};
    made.what = EVENT;
    made.event = e;
    return add(n, g, after, n_after, made);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *how,
                                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        node *d = to[i];
        if (g->all[d->place].get() != d || from[i]->place >= d->place
            || std::count(d->after.begin(), d->after.end(), from[i]->place) > 0)
            return said(cudaErrorInvalidValue);
        bool early = how && how[i].type == cudaGraphDependencyTypeProgrammatic;
        if (how && (how[i].from_port == cudaGraphKernelNodePortProgrammatic) != early)
            return said(cudaErrorInvalidValue);
        if (early && (from[i]->what != KERNEL || d->what != KERNEL))
            return said(cudaErrorInvalidValue);
        d->after.push_back(from[i]->place);
        d->early = d->early || early;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t n, cudaLaunchAttributeID which,
                                            const cudaLaunchAttributeValue *v)
{
    if (n->what != KERNEL || which != cudaLaunchAttributePriority)
        return said(cudaErrorInvalidValue);
    n->priority = v->priority;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g,
                                          unsigned long long flags)
{
    if (!asked("graphs", 1))
        return said(cudaErrorUnknown);
    *x = new exec;
    for (const auto &n : g->all)
        (*x)->all.push_back(*n);
    (*x)->mixed = false;
    (*x)->ranked = flags & cudaGraphInstantiateFlagUseNodePriority;
    (*x)->chain = chain_of(**x);
    check_priorities(**x);
    n_graphs++;
    return cudaSuccess;
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
    return pack_node(&now, p) ? tell(x, n, now) : said(cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t n, void *to,
                                               const void *from, size_t bytes, cudaMemcpyKind kind)
{
    node now = copy_node(to, from, bytes, kind);
    return takes(now) ? tell(x, n, now) : said(cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t n,
                                             const cudaMemsetParams *p)
{
    node now = zero_node(p);
    return takes(now) ? tell(x, n, now) : said(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    cudaError_t e = cudaSuccess;
    long calls = ++n_calls;
    n_replays++;
    chain = x->chain;
    early = std::count_if(x->all.begin(), x->all.end(), [](const node &n) { return n.early; });
    first = std::count_if(x->all.begin(), x->all.end(),
                          [x](const node &n) { return x->ranked && n.priority < 0; });
    for (size_t i : order_of(*x, x->mixed)) {
        const node &n = x->all[i];
        cudaError_t own = cudaSuccess;
        if (n.what == KERNEL)
            run(n.call, n.early);
        else if (n.what == COPY && takes(n)) /* pinned memory may have changed */
            own = cudaMemcpyAsync(n.to, n.from, n.bytes, n.way, s);
        else if (n.what == ZERO)
            own = cudaMemsetAsync(n.to, 0, n.bytes, s);
        else if (n.what == EVENT)
            own = cudaEventRecord(n.event, s);
        e = e != cudaSuccess ? e : own;
    }
    x->mixed = !x->mixed;
    n_calls = calls; /* counts as one driver call */
    return e;
}
