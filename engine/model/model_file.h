/* model_file.h - opens what a user names as a model. */
#ifndef KVF_ENGINE_MODEL_FILE_H
#define KVF_ENGINE_MODEL_FILE_H

#include "engine/model/gguf.h"

/* A GGUF file, or a folder as hf_folder.h has it.  Codes as gguf_open. */
int model_file_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d);

#endif
