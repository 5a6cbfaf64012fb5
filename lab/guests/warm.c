// Copyright (c) 2026, The vTorque authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// The tiny guest's part of a warm start: say that the guest can be saved, and obey the first order of whoever it becomes
// (docs/developer/wire-formats.md).  It ends with status 0 when that order was obeyed; the boot then goes on.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#define MOST (16 << 20)
#define CARD "eth0"
#define SPARE (8 << 20) // bytes of free memory that are left alone
#define MOST_ZEROED (1 << 30)
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static char why[256];
static int as_it_was; // what a test of uniqueness wants to go wrong

static int fail(const char *what)
{
    snprintf(why, sizeof(why), "%.150s: %.90s", what, strerror(errno));
    return -1;
}

static int decode(const char *text, unsigned char *out) // returns how many bytes the base64 holds
{
    unsigned int bits = 0, held = 0;
    int count = 0;
    for (; *text && *text != '='; text++) {
        const char *all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const char *found = strchr(all, *text);
        if (!found)
            return -1;
        bits = bits << 6 | (unsigned int)(found - all);
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[count++] = (unsigned char)(bits >> held);
        }
    }
    return count;
}

static int reseed(const char *text)
{
    struct {
        struct rand_pool_info info;
        unsigned char bytes[256];
    } pool;
    if (as_it_was)
        return 0;
    if (strlen(text) > 256)
        return errno = EINVAL, fail("entropy");
    int count = decode(text, (unsigned char *)pool.info.buf);
    int random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    if (count < 64 || random < 0)
        return fail("entropy");
    pool.info.entropy_count = count * 8;
    pool.info.buf_size = count;
    int wrong = ioctl(random, RNDADDENTROPY, &pool) || ioctl(random, RNDRESEEDCRNG);
    close(random);
    return wrong ? fail("entropy") : 0;
}

static int set_clock(const char *text)
{
    double seconds = strtod(text, NULL);
    struct timespec now = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    return clock_settime(CLOCK_REALTIME, &now) ? fail("clock") : 0;
}

static int write_file(const char *path, mode_t mode, const void *content, size_t size)
{
    char place[4096];
    snprintf(place, sizeof(place), "%s", path);
    for (char *slash = strchr(place + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(place, 0755) && errno != EEXIST)
            return fail(place);
        *slash = '/';
    }
    unlink(path);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 || write(file, content, size) != (ssize_t)size || fchmod(file, mode) || close(file))
        return fail(path);
    return 0;
}

static int write_line(const char *path, const char *text)
{
    char line[512];
    int size = snprintf(line, sizeof(line), "%s\n", text);
    return write_file(path, 0444, line, (size_t)size);
}

static int be_another_boot(const char *text)
{
    if (write_line("/run/boot_id", text))
        return -1;
    return mount("/run/boot_id", BOOT_ID, NULL, MS_BIND, NULL) ? fail("boot_id") : 0;
}

static int be_called(const char *text)
{
    if (sethostname(text, strlen(text)))
        return fail("hostname");
    return write_line("/etc/hostname", text);
}

static int set_mac(const char *text)
{
    struct ifreq request = {.ifr_name = CARD};
    unsigned char *mac = (unsigned char *)request.ifr_hwaddr.sa_data;
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    if (sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
        return errno = EINVAL, fail("mac");
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int wrong = any < 0 || ioctl(any, SIOCSIFHWADDR, &request);
    close(any);
    return wrong ? fail("mac") : 0;
}

static int take_file(char *text) // MODE PATH BASE64
{
    char *path = strchr(text, ' '), *content = strrchr(text, ' ');
    if (!path || content == path)
        return errno = EINVAL, fail("file");
    *path++ = 0;
    *content++ = 0;
    unsigned char *bytes = malloc(strlen(content) + 1);
    int size = bytes ? decode(content, bytes) : -1;
    int wrong = size < 0 ? fail(path) : write_file(path, (mode_t)strtoul(text, NULL, 8), bytes, (size_t)size);
    free(bytes);
    return wrong;
}

static int obey(char *order)
{
    int whole = 0;
    for (char *line = strtok(order, "\n"); line; line = strtok(NULL, "\n")) {
        char *value = strchr(line, ' ');
        if (!value) {
            whole = !strcmp(line, "end");
            continue;
        }
        *value++ = 0;
        int wrong = !strcmp(line, "version")      ? (strcmp(value, "1") ? errno = EPROTO, fail("version") : 0)
                    : !strcmp(line, "entropy")    ? reseed(value)
                    : !strcmp(line, "clock")      ? set_clock(value)
                    : !strcmp(line, "machine_id") ? write_line("/etc/machine-id", value)
                    : !strcmp(line, "boot_id")    ? be_another_boot(value)
                    : !strcmp(line, "hostname")   ? be_called(value)
                    : !strcmp(line, "mac")        ? set_mac(value)
                    : !strcmp(line, "file")       ? take_file(value)
                                                  : 0;
        if (wrong)
            return wrong;
    }
    return whole ? 0 : (errno = ENODATA, fail("order"));
}

static int read_line(int port, char *line, size_t size)
{
    for (size_t count = 0; count + 1 < size; count++) {
        if (read(port, line + count, 1) != 1)
            return -1;
        if (line[count] == '\n') {
            line[count] = 0;
            return 0;
        }
    }
    return -1;
}

static char *read_order(int port, long size)
{
    char *order = size > 0 && size <= MOST ? malloc((size_t)size + 1) : NULL;
    for (long have = 0; order && have < size;) {
        ssize_t more = read(port, order + have, (size_t)(size - have));
        if (more <= 0) {
            free(order);
            return NULL;
        }
        have += more;
        order[have] = 0;
    }
    return order;
}

static int say(int port, const char *text)
{
    return write(port, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

static void answer(int port, int status) // with what went wrong, in base64
{
    const char *all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char line[512];
    int count = snprintf(line, sizeof(line), "%d ", status);
    size_t size = status ? strlen(why) : 0;
    for (size_t at = 0; at < size; at += 3) {
        unsigned int bits = 0;
        for (size_t n = 0; n < 3; n++)
            bits = bits << 8 | (at + n < size ? (unsigned char)why[at + n] : 0U);
        for (size_t n = 0; n < 4; n++)
            line[count++] = at + n > size ? '=' : all[bits >> (18 - 6 * n) & 63];
    }
    line[count++] = '\n';
    line[count] = 0;
    say(port, line);
}

static void zero_free_memory(void) // as roles/guest_image/files/vtorque_warm/template.py does
{
    struct sysinfo about;
    if (sysinfo(&about) || about.freeram * about.mem_unit <= SPARE)
        return;
    size_t size = about.freeram * about.mem_unit - SPARE;
    if (size > MOST_ZEROED)
        size = MOST_ZEROED;
    void *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (all != MAP_FAILED)
        munmap(all, size);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fprintf(stderr, "usage: warm PORT TOKEN [FAULT]\n"), 2;
    as_it_was = argc > 3 && !strcmp(argv[3], "warm-same");
    char line[512], reply[700];
    int port = open(argv[1], O_RDWR | O_CLOEXEC);
    if (port < 0)
        return perror(argv[1]), 1;
    zero_free_memory();
    printf("\r\nvtorque-warm %s\r\n", argv[2]);
    fflush(stdout);
    for (;;) {
        // a write waits until the node listens, and a read does not
        snprintf(reply, sizeof(reply), "vtorque-agent %s\n", argv[2]);
        if (say(port, reply)) {
            sleep(1);
            continue;
        }
        while (!read_line(port, line, sizeof(line))) {
            long seconds, size;
            if (!strncmp(line, "hello ", 6)) {
                snprintf(reply, sizeof(reply), "vtorque-agent %s %s\n", argv[2], line + 6);
                say(port, reply);
            } else if (sscanf(line, "warm %ld %ld", &seconds, &size) == 2) {
                char *order = read_order(port, size);
                int wrong = order ? obey(order) : fail("order");
                answer(port, wrong ? 1 : 0);
                if (!wrong)
                    return 0;
            }
        }
    }
}
