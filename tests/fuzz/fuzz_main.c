/* fuzz_main.c - replays a corpus: every file of the folders given as arguments
 * through the fuzz target that this is linked with. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "rb");
    unsigned char *p = malloc(MOST);
    int done = f && p;
    if (done)
        LLVMFuzzerTestOneInput(p, fread(p, 1, MOST, f));
    free(p);
    if (f)
        fclose(f);
    return done;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        struct dirent *e;
        while (dir && (e = readdir(dir))) {
            char path[4096];
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (!replay(path)) {
                fprintf(stderr, "%s: cannot read\n", path);
                return 1;
            }
            n++;
        }
        if (dir)
            closedir(dir);
    }
    printf("%d inputs replayed\n", n);
    return n ? 0 : 1;
}
