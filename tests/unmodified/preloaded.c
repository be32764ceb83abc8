// A tool that is preloaded, and counts calls of the program.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

int locks, signals;

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*next)(pthread_mutex_t *);
    if (!next) next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    __atomic_fetch_add(&locks, 1, __ATOMIC_RELAXED);
    return next(mutex);
}

int pthread_cond_signal(pthread_cond_t *condition) {
    __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
    (void)condition;
    return 0;
}
