/* model_file.c - opens a GGUF file or a model folder. */
#include "engine/model/model_file.h"

#include <sys/stat.h>

#include "engine/model/hf_folder.h"

int model_file_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d)
{
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return folder ? hf_folder_open(path, ret_gguf, d) : gguf_open(path, ret_gguf, d);
}
