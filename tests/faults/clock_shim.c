/* The wall clock of one process, ahead or behind by what a file says: for a JVM, through LD_PRELOAD.
 *
 *   cc -O2 -shared -fPIC -o clock_shim.so clock_shim.c -ldl
 *   FAULTS_CLOCK=/path/file   eight bytes, nanoseconds ahead, this machine's byte order; mapped, so a change counts at once
 *
 * Only CLOCK_REALTIME moves: waits and time-outs, which use CLOCK_MONOTONIC, go on as they were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL

static const volatile int64_t none = 0;
static const volatile int64_t *ahead_ns = &none;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_offset(void) {
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("FAULTS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) ahead_ns = mapped;
}

int clock_gettime(clockid_t which, struct timespec *out) {
    if (!real_gettime) real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_gettime(which, out);
    if (failed || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) return failed;
    int64_t all = out->tv_sec * SECOND_NS + out->tv_nsec + *ahead_ns;
    out->tv_sec = all / SECOND_NS;
    out->tv_nsec = all % SECOND_NS;
    return 0;
}

int gettimeofday(struct timeval *out, void *zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed && out) {
        out->tv_sec = now.tv_sec;
        out->tv_usec = now.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
