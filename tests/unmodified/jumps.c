/* Calls that are left by a jump out of a signal handler, C's way to a timeout. */
#include <setjmp.h>
#include <signal.h>

static __thread sigjmp_buf back;

void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

/* Returns 1 if `call` was left by a jump. */
int is_left_by_jump(void (*call)(void *), void *argument) {
    if (sigsetjmp(back, 1) == 0) {
        call(argument);
        return 0;
    }
    return 1;
}
