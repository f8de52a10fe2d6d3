/* parcel.cu - copies to host on a second stream, concurrently with the kernels of the first one. */
#include "engine/cuda/device.cuh"

struct parcels {
    cudaStream_t stream;
    cudaEvent_t packed[GPU_PARCELS], sent[GPU_PARCELS];
};

static void drop(struct parcels *p)
{
    for (int i = 0; i < GPU_PARCELS; i++) {
        if (p->packed[i])
            cudaEventDestroy(p->packed[i]);
        if (p->sent[i])
            cudaEventDestroy(p->sent[i]);
    }
    if (p->stream)
        cudaStreamDestroy(p->stream);
    mem_free(p);
}

bool gpu_parcels_open(struct gpu *g)
{
    if (g->parcels)
        return true;
    struct parcels *p = (struct parcels *)mem_alloc(1, sizeof *p);
    if (!p)
        return false;
    bool good = cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking) == cudaSuccess;
    for (int i = 0; good && i < GPU_PARCELS; i++)
        good = cudaEventCreateWithFlags(&p->packed[i], cudaEventDisableTiming) == cudaSuccess
               && cudaEventCreateWithFlags(&p->sent[i], cudaEventDisableTiming) == cudaSuccess;
    if (!good) {
        (void)cudaGetLastError();
        drop(p);
        return false;
    }
    g->parcels = p;
    return true;
}

void gpu_parcels_close(struct gpu *g)
{
    if (!g->parcels)
        return;
    cudaStreamSynchronize(g->stream);
    drop(g->parcels);
    g->parcels = NULL;
}

void gpu_copyback_begin(struct gpu *g, int i)
{
    struct parcels *p = g->parcels;
    gpu_graph_break(g);
    gpu_note(g, cudaEventRecord(p->packed[i], g->stream));
    gpu_note(g, cudaStreamWaitEvent(p->stream, p->packed[i], 0));
}

void gpu_parcel_add(struct gpu *g, void *pinned, const void *device, size_t bytes)
{
    struct parcels *p = g->parcels;
    if (bytes > 0)
        gpu_note(g, cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, p->stream));
}

void gpu_parcel_end(struct gpu *g, int i)
{
    gpu_note(g, cudaEventRecord(g->parcels->sent[i], g->parcels->stream));
}

bool gpu_parcel_wait(struct gpu *g, int i)
{
    gpu_note(g, cudaEventSynchronize(g->parcels->sent[i]));
    return g->error == cudaSuccess;
}

void gpu_parcels_join(struct gpu *g, int i)
{
    gpu_note(g, cudaStreamWaitEvent(g->stream, g->parcels->sent[i], 0));
}
