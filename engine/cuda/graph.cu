/* graph.cu - records work, compares it with the preceding recording, and launches it as a CUDA
 * graph: one call of the driver instead of hundreds.
 *
 * A recording is a list of nodes with all their arguments. It is compared with the last recording
 * node by node, so every change is noticed. */
#include <string.h>

#include "engine/cuda/device.cuh"

enum node_kind { NODE_KERNEL, NODE_COPY, NODE_ZERO, NODE_MARK };
enum { MAX_ARGS = GPU_MAX_ARGS, ALIGN = 16, TRUNK = -1, MAX_BEFORE = 2 * GPU_BRANCHES + 1 };

struct node {
    int kind, n_args;
    int branch;  /* TRUNK or branch number; branches do not wait for each other */
    bool aside;  /* side chain: only other nodes of the side chain wait for it */
    bool leaves; /* first node of a side chain after other nodes */
    const void *kernel;
    dim3 grid, block;
    size_t shared;
    size_t at[MAX_ARGS], size[MAX_ARGS]; /* offsets and sizes of its arguments in `byte` */
    size_t end;                          /* end of the arguments */
    void *to;                            /* target of a copy or of zeros */
    const void *from;
    size_t bytes;
    cudaMemcpyKind way;
    cudaEvent_t mark;
    bool early;   /* may start before the preceding kernel ends */
    bool changed; /* since the graph was built */
    cudaGraphNode_t made;
};

struct gpu_graph {
    struct node *node;
    size_t n, room; /* number of valid nodes, and capacity */
    size_t kept;    /* nodes of the last recording */
    char *byte;     /* bytes of arguments */
    size_t n_bytes, bytes_room;
    bool same; /* same shape as the last recording so far */
    int branch;
    bool aside, leaves; /* for the next node */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    struct gpu_graph_facts facts;
};

static void drop_exec(struct gpu_graph *x)
{
    if (x->exec)
        cudaGraphExecDestroy(x->exec);
    if (x->graph)
        cudaGraphDestroy(x->graph);
    x->exec = NULL;
    x->graph = NULL;
}

static void list_args(const struct gpu_graph *x, const struct node *d, void **arg)
{
    for (int i = 0; i < d->n_args; i++)
        arg[i] = x->byte + d->at[i];
}

static cudaKernelNodeParams kernel_params(const struct node *d, void **arg)
{
    cudaKernelNodeParams p = {};
    p.func = (void *)d->kernel;
    p.gridDim = d->grid;
    p.blockDim = d->block;
    p.sharedMemBytes = (unsigned)d->shared;
    p.kernelParams = arg;
    return p;
}

static cudaMemsetParams zero_params(const struct node *d)
{
    cudaMemsetParams p = {};
    p.dst = d->to;
    p.elementSize = 1;
    p.width = d->bytes;
    p.height = 1;
    return p;
}

/* Puts one node on the stream. */
static void run_node(struct gpu *g, const struct node *d, void **arg)
{
    if (d->kind == NODE_KERNEL)
        gpu_note(g, cudaLaunchKernel(d->kernel, d->grid, d->block, arg, d->shared, g->stream));
    else if (d->kind == NODE_COPY)
        gpu_note(g, cudaMemcpyAsync(d->to, d->from, d->bytes, d->way, g->stream));
    else if (d->kind == NODE_MARK)
        gpu_note(g, cudaEventRecord(d->mark, g->stream));
    else
        gpu_note(g, cudaMemsetAsync(d->to, 0, d->bytes, g->stream));
}

static void run_all(struct gpu *g, const struct gpu_graph *x)
{
    void *arg[MAX_ARGS];
    for (size_t i = 0; i < x->n; i++) {
        list_args(x, &x->node[i], arg);
        run_node(g, &x->node[i], arg);
    }
}

/* Last nodes on which the next node can depend. */
struct ends {
    const struct node *fork;                    /* last node of the trunk */
    const struct node *of[GPU_BRANCHES];        /* last node of each branch, or NULL */
    const struct node *aside[1 + GPU_BRANCHES]; /* last node of each side chain */
};

/* A node of a branch depends on the preceding node of the branch, and its first node on the trunk.
 * A node of the trunk depends on all branches. Returns the number of dependencies. */
static int before_node(const struct ends *e, int branch, const struct node **ret_before)
{
    int n = 0;
    if (branch != TRUNK && e->of[branch]) {
        ret_before[0] = e->of[branch];
        return 1;
    }
    for (int i = 0; branch == TRUNK && i < GPU_BRANCHES; i++)
        if (e->of[i])
            ret_before[n++] = e->of[i];
    if (n == 0 && e->fork)
        ret_before[n++] = e->fork;
    return n;
}

/* A node of a side chain depends on the preceding node there. If it starts from its branch, it also
 * depends on that. */
static int before_aside(const struct ends *e, const struct node *d, const struct node **ret_before)
{
    const struct node *last = e->aside[1 + d->branch];
    int n = d->leaves || !last ? before_node(e, d->branch, ret_before) : 0;
    if (last)
        ret_before[n++] = last;
    return n;
}

/* A mark depends on all nodes. */
static int before_mark(const struct ends *e, const struct node **ret_before)
{
    int n = before_node(e, TRUNK, ret_before);
    for (int i = 0; i <= GPU_BRANCHES; i++)
        if (e->aside[i])
            ret_before[n++] = e->aside[i];
    return n;
}

static void end_node(struct ends *e, const struct node *d)
{
    if (d->kind == NODE_MARK)
        return;
    if (d->aside) {
        e->aside[1 + d->branch] = d;
        return;
    }
    if (d->branch != TRUNK) {
        e->of[d->branch] = d;
        return;
    }
    memset(e->of, 0, sizeof e->of);
    e->fork = d;
}

/* Returns true if earlier_done of the kernel waits: its code is for compute capability 9.0 or
 * later. Code that the driver compiled from PTX for an older capability does not wait on any
 * device. */
static bool waits_itself(const void *kernel)
{
    struct cudaFuncAttributes a;
    if (cudaFuncGetAttributes(&a, kernel) == cudaSuccess)
        return a.ptxVersion >= 90;
    (void)cudaGetLastError();
    return false;
}

/* Adds kernel d so that it may start while its only predecessor runs. It waits for the predecessor
 * in earlier_done. */
static cudaError_t add_early(struct gpu_graph *x, struct node *d, const struct node *before,
                             const cudaKernelNodeParams *p)
{
#if CUDART_VERSION >= 13000
    cudaGraphEdgeData how = {};
    how.from_port = cudaGraphKernelNodePortProgrammatic;
    how.type = cudaGraphDependencyTypeProgrammatic;
    cudaError_t e = cudaGraphAddKernelNode(&d->made, x->graph, NULL, 0, p);
    if (e != cudaSuccess)
        return e;
    return cudaGraphAddDependencies(x->graph, &before->made, &d->made, &how, 1);
#else
    return cudaGraphAddKernelNode(&d->made, x->graph, &before->made, 1, p);
#endif
}

/* Gives the kernels of the main chain a higher priority than side chains. A step waits for the main
 * chain, and side chains use only the remaining resources. */
static cudaError_t put_before_asides(const struct node *d)
{
    cudaLaunchAttributeValue v = {};
    v.priority = -1; /* 0: the default priority */
    return cudaGraphKernelNodeSetAttribute(d->made, cudaLaunchAttributePriority, &v);
}

static cudaError_t add_kernel(struct gpu_graph *x, struct node *d, const struct node *const *before,
                              const cudaGraphNode_t *made, int n)
{
    void *arg[MAX_ARGS];
    list_args(x, d, arg);
    cudaKernelNodeParams p = kernel_params(d, arg);
    bool early = d->early && n == 1 && before[0]->kind == NODE_KERNEL && waits_itself(d->kernel);
    cudaError_t e = early ? add_early(x, d, before[0], &p)
                          : cudaGraphAddKernelNode(&d->made, x->graph, made, (size_t)n, &p);
    return e == cudaSuccess && !d->aside ? put_before_asides(d) : e;
}

static cudaError_t add_node(struct gpu_graph *x, struct node *d, struct ends *ends)
{
    const struct node *before[MAX_BEFORE];
    cudaGraphNode_t made[MAX_BEFORE];
    int n = d->aside ? before_aside(ends, d, before) : before_node(ends, d->branch, before);
    if (d->kind == NODE_MARK)
        n = before_mark(ends, before);
    for (int i = 0; i < n; i++)
        made[i] = before[i]->made;
    end_node(ends, d);
    cudaMemsetParams zero = zero_params(d);
    if (d->kind == NODE_KERNEL)
        return add_kernel(x, d, before, made, n);
    if (d->kind == NODE_MARK)
        return cudaGraphAddEventRecordNode(&d->made, x->graph, made, (size_t)n, d->mark);
    if (d->kind == NODE_COPY)
        return cudaGraphAddMemcpyNode1D(&d->made, x->graph, made, (size_t)n, d->to, d->from,
                                        d->bytes, d->way);
    return cudaGraphAddMemsetNode(&d->made, x->graph, made, (size_t)n, &zero);
}

/* Builds the graph with all nodes in order, with concurrent branches. Returns false if the driver
 * fails; then the nodes must be put on the stream one by one. */
static bool build(struct gpu_graph *x)
{
    struct ends ends = {};
    cudaError_t e = cudaGraphCreate(&x->graph, 0);
    for (size_t i = 0; e == cudaSuccess && i < x->n; i++) {
        e = add_node(x, &x->node[i], &ends);
        x->node[i].changed = false;
    }
    if (e == cudaSuccess)
        e = cudaGraphInstantiateWithFlags(&x->exec, x->graph,
                                          cudaGraphInstantiateFlagUseNodePriority);
    x->facts.built += e == cudaSuccess;
    if (e == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    x->exec = NULL;
    drop_exec(x);
    return false;
}

static cudaError_t update_node(const struct gpu_graph *x, const struct node *d)
{
    void *arg[MAX_ARGS];
    list_args(x, d, arg);
    cudaKernelNodeParams kernel = kernel_params(d, arg);
    cudaMemsetParams zero = zero_params(d);
    if (d->kind == NODE_KERNEL)
        return cudaGraphExecKernelNodeSetParams(x->exec, d->made, &kernel);
    if (d->kind == NODE_COPY)
        return cudaGraphExecMemcpyNodeSetParams1D(x->exec, d->made, d->to, d->from, d->bytes,
                                                  d->way);
    return cudaGraphExecMemsetNodeSetParams(x->exec, d->made, &zero);
}

/* Updates the nodes with new arguments. Returns false if the driver rejects one. */
static bool update(struct gpu_graph *x)
{
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; e == cudaSuccess && i < x->n; i++) {
        if (!x->node[i].changed)
            continue;
        e = update_node(x, &x->node[i]);
        x->node[i].changed = false;
        x->facts.updated++;
    }
    if (e == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    drop_exec(x);
    return false;
}

/* ---- recording */

void gpu_graph_begin(struct gpu *g, struct gpu_graph **graph)
{
    if (!*graph)
        *graph = MEM_NEW(struct gpu_graph, 1);
    struct gpu_graph *x = *graph;
    if (!x)
        return; /* without a recording launches run on the stream */
    x->kept = x->n;
    x->n = x->n_bytes = 0;
    x->same = true;
    x->branch = TRUNK;
    x->aside = x->leaves = false;
    g->recording = x;
}

void gpu_branch(struct gpu *g, int i)
{
    if (g->recording)
        g->recording->branch = i < 0 ? TRUNK : i % GPU_BRANCHES;
}

void gpu_low_priority(struct gpu *g, bool aside)
{
    if (g->recording)
        g->recording->aside = g->recording->leaves = aside;
}

void gpu_graph_end(struct gpu *g)
{
    struct gpu_graph *x = g->recording;
    g->recording = NULL;
    if (!x)
        return;
    bool again = x->same && x->n == x->kept && x->n > 0;
    x->facts.nodes = (long)x->n;
    if (!again) {
        drop_exec(x);
        x->facts.shapes++;
    } else if (x->exec ? update(x) : build(x)) {
        gpu_note(g, cudaGraphLaunch(x->exec, g->stream));
        x->facts.replayed++;
        return;
    } else {
        x->facts.refused++;
    }
    run_all(g, x);
}

void gpu_graph_break(struct gpu *g)
{
    struct gpu_graph *x = g->recording;
    if (!x)
        return;
    g->recording = NULL;
    x->facts.broken++;
    drop_exec(x);
    run_all(g, x);
    x->n = 0;
}

void gpu_graph_free(struct gpu *g, struct gpu_graph *x)
{
    if (!x)
        return;
    (void)cudaStreamSynchronize(g->stream);
    drop_exec(x);
    mem_free(x->node);
    mem_free(x->byte);
    mem_free(x);
}

struct gpu_graph_facts gpu_graph_look(const struct gpu_graph *x)
{
    const struct gpu_graph_facts none = {};
    return x ? x->facts : none;
}

/* Allocates the next node and its arguments, which end at `end`. Returns NULL if there is not
 * enough memory; the recording has then been put on the stream. */
static struct node *next_node(struct gpu *g, size_t end)
{
    struct gpu_graph *x = g->recording;
    if (x->n == x->room) {
        size_t room = 2 * x->room + 64;
        struct node *node = (struct node *)mem_grow(x->node, x->room, room, sizeof *node);
        x->node = node ? node : x->node;
        x->room = node ? room : x->room;
    }
    if (end > x->bytes_room) {
        size_t room = 2 * end;
        char *byte = (char *)mem_grow(x->byte, x->bytes_room, room, 1);
        x->byte = byte ? byte : x->byte;
        x->bytes_room = byte ? room : x->bytes_room;
    }
    if (x->n < x->room && end <= x->bytes_room)
        return &x->node[x->n];
    gpu_graph_break(g);
    return NULL;
}

/* Returns true if node d of the last recording has the same shape as this one. */
static bool alike(const struct node *d, const struct node *now)
{
    return d->kind == now->kind && d->kernel == now->kernel && d->n_args == now->n_args
           && d->branch == now->branch && d->aside == now->aside && d->leaves == now->leaves
           && d->way == now->way && d->mark == now->mark
           && memcmp(d->size, now->size, sizeof d->size) == 0 && d->end == now->end;
}

static bool equal(dim3 a, dim3 b)
{
    return a.x == b.x && a.y == b.y && a.z == b.z;
}

/* Records a node, including the arguments of a kernel. */
static void take_node(struct gpu_graph *x, struct node *to, struct node now, void **arg)
{
    bool known = x->same && x->n < x->kept && alike(to, &now);
    bool changed = !known || !equal(to->grid, now.grid) || !equal(to->block, now.block)
                   || to->shared != now.shared || to->to != now.to || to->from != now.from
                   || to->bytes != now.bytes;
    for (int i = 0; i < now.n_args; i++) {
        char *byte = x->byte + now.at[i];
        changed |= known && memcmp(byte, arg[i], now.size[i]) != 0;
        memcpy(byte, arg[i], now.size[i]);
    }
    now.changed = changed || (known && to->changed);
    now.made = known ? to->made : NULL;
    x->same &= known;
    x->n_bytes = now.end;
    *to = now;
    x->n++;
}

/* Records the next node, or puts it on the stream. */
static void put_node(struct gpu *g, const struct node *now, void **arg)
{
    struct node *to = g->recording ? next_node(g, now->end) : NULL;
    if (to) {
        struct node mine = *now;
        mine.branch = g->recording->branch;
        mine.aside = g->recording->aside;
        mine.leaves = g->recording->leaves;
        g->recording->leaves = false;
        take_node(g->recording, to, mine, arg);
    } else {
        run_node(g, now, arg);
    }
}

void gpu_launch_kernel(struct gpu *g, const struct gpu_call *call)
{
    struct node now = {};
    now.kind = NODE_KERNEL;
    now.kernel = call->kernel;
    now.grid = call->grid;
    now.block = call->block;
    now.shared = call->shared;
    now.n_args = call->n_args;
    now.early = call->early && g->early;
    now.end = g->recording ? (g->recording->n_bytes + ALIGN - 1) / ALIGN * ALIGN : 0;
    for (int i = 0; i < call->n_args; i++) {
        now.at[i] = now.end;
        now.size[i] = call->size[i];
        now.end += (call->size[i] + ALIGN - 1) / ALIGN * ALIGN;
    }
    put_node(g, &now, call->arg);
}

static void put_copy(struct gpu *g, void *to, const void *from, size_t bytes, cudaMemcpyKind way)
{
    struct node now = {};
    now.kind = NODE_COPY;
    now.to = to;
    now.from = from;
    now.bytes = bytes;
    now.way = way;
    now.end = g->recording ? g->recording->n_bytes : 0;
    if (bytes > 0)
        put_node(g, &now, NULL);
}

void gpu_copy(struct gpu *g, void *to, const void *from, size_t bytes)
{
    put_copy(g, to, from, bytes, cudaMemcpyDeviceToDevice);
}

void gpu_fetch(struct gpu *g, void *pinned, const void *device, size_t bytes)
{
    put_copy(g, pinned, device, bytes, cudaMemcpyDeviceToHost);
}

void gpu_send(struct gpu *g, void *device, const void *pinned, size_t bytes)
{
    put_copy(g, device, pinned, bytes, cudaMemcpyHostToDevice);
}

void gpu_mark(struct gpu *g, int i)
{
    struct node now = {};
    now.kind = NODE_MARK;
    now.mark = g->mark[i];
    now.end = g->recording ? g->recording->n_bytes : 0;
    put_node(g, &now, NULL);
}

bool gpu_marked(struct gpu *g, int i)
{
    gpu_note(g, cudaEventSynchronize(g->mark[i]));
    return g->error == cudaSuccess;
}

void gpu_zero(struct gpu *g, void *device, size_t bytes)
{
    struct node now = {};
    now.kind = NODE_ZERO;
    now.to = device;
    now.bytes = bytes;
    now.end = g->recording ? g->recording->n_bytes : 0;
    if (bytes > 0)
        put_node(g, &now, NULL);
}
