/* lose.cu - an LD_PRELOAD library that loses the program's device: as soon as the file KVF_LOSE
 * exists, a kernel traps in the program's own context. Every later driver call in the context
 * fails. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

__global__ void trap()
{
    __trap();
}

static void *lose(void *file)
{
    while (access((const char *)file, F_OK) != 0)
        usleep(200);
    trap<<<1, 1>>>();
    cudaDeviceSynchronize();
    return NULL;
}

__attribute__((constructor)) static void wait_for_file()
{
    char *file = getenv("KVF_LOSE");
    pthread_t thread;
    if (file && pthread_create(&thread, NULL, lose, file) == 0)
        pthread_detach(thread);
}
