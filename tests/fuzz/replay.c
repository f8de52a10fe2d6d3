/* replay.c - runs a fuzz target on the files of a folder. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Returns a buffer of exactly the file's size, so that tools detect reads beyond its end. */
static uint8_t *load(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = NULL;
    long n = -1;
    if (f && fseek(f, 0, SEEK_END) == 0)
        n = ftell(f);
    if (n >= 0)
        p = malloc(n ? (size_t)n : 1);
    rewind(f);
    if (!p || fread(p, 1, (size_t)n, f) != (size_t)n) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(f);
    *ret_n = (size_t)n;
    return p;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
            char path[4096];
            size_t n;
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            uint8_t *data = load(path, &n);
            LLVMFuzzerTestOneInput(data, n);
            free(data);
            n_files++;
        }
        if (dir)
            closedir(dir);
    }
    printf("%d inputs\n", n_files);
    return n_files == 0;
}
