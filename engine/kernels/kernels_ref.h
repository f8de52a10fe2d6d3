/* kernels_ref.h - the C reference kernels. They are always built and define the correct results. */
#pragma once

#include "engine/kernels/kernels.h"

#define KERNEL(name, DECL) DECL(name##_ref);
#include "engine/kernels/kernels.list"
#undef KERNEL
/* Kernels for pages of integers. */
DECL_ATTN_AV(attn_av_ints_ref);
DECL_KV_STORE(kv_store_ints_ref);
