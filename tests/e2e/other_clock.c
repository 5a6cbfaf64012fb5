/* Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * For LD_PRELOAD: the system's clock is as many seconds off as the file OTHER_CLOCK says at this moment, and kept by
 * somebody as long as that is none.  All other clocks are true.  libfaketime 0.9.10 would do for the first, but for its
 * clock_nanosleep, which fails where the monotonic clock is not faked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static long off(void)
{
    char text[32] = "";
    const char *path = getenv("OTHER_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) < 0)
            text[0] = 0;
        close(fd);
    }
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int status;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    status = real(clock, now);
    if (status == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += off();
    return status;
}

time_t time(time_t *there)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (there)
        *there = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict there, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    there->tv_sec = now.tv_sec;
    there->tv_usec = now.tv_nsec / 1000;
    return 0;
}

int adjtimex(struct timex *there)
{
    (void)there;
    return off() ? TIME_ERROR : TIME_OK;
}
