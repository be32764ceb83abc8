// Uses the C library's first version of condition variables, as a program that was linked in 2002 does.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OLD(function) __asm__(".symver " #function "," #function "@GLIBC_2.2.5")
OLD(pthread_cond_init);
OLD(pthread_cond_destroy);
OLD(pthread_cond_wait);
OLD(pthread_cond_timedwait);
OLD(pthread_cond_signal);
OLD(pthread_cond_broadcast);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_static = PTHREAD_COND_INITIALIZER;
static int waiting, ready;

static void *wait_for(void *condition) {
    pthread_mutex_lock(&mutex);
    waiting++;
    while (!ready) pthread_cond_wait(condition, &mutex);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static int used(pthread_cond_t *condition) {
    pthread_t threads[3];
    waiting = ready = 0;
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, wait_for, condition)) return 1;
    for (int all = 0; !all;) {
        pthread_mutex_lock(&mutex);
        all = waiting == 3;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    struct timespec past = {1, 0};
    int outcome = pthread_cond_timedwait(condition, &mutex, &past);
    ready = 1;
    pthread_cond_signal(condition);
    pthread_cond_broadcast(condition);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return outcome != ETIMEDOUT;
}

// Calls back if all is right.
void use_conditions(void (*callback)(void *), void *data) {
    for (int i = 0; i < 100; i++) {
        // An initialiser has to write all that the other functions read.
        pthread_cond_t *condition = malloc(sizeof *condition);
        memset(condition, 0xa5, sizeof *condition);
        if (pthread_cond_init(condition, NULL) || used(condition) || pthread_cond_destroy(condition)) return;
        free(condition);
    }
    if (!used(&is_static)) callback(data);
}
