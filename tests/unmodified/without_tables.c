/* A call that is left by a jump, and calls afterwards whose frames lie where the first one's were. Compiled without unwind
   tables, so that the stack cannot be walked. */
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static __thread sigjmp_buf back;

void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

__attribute__((noinline)) static void reads_deep(int from, int depth) {
    volatile char room[64];
    room[0] = 1;
    if (depth > 0) {
        reads_deep(from, depth - 1);
    } else {
        char byte;
        room[1] = read(from, &byte, 1) > 0;
    }
    room[2] = 1;
}

__attribute__((noinline)) static int reads(int from, int times) {
    char room[16384];
    int count = 0;
    for (int i = 0; i < times; i++) {
        count += read(from, room, 1) == 1;
    }
    return count;
}

/* Reads from `silent` until a signal comes, and then a byte so many times. Returns how many bytes have come. */
int reads_after_jump(int silent, int from, int times) {
    if (sigsetjmp(back, 1) == 0) {
        reads_deep(silent, 3);
    }
    return reads(from, times);
}
