/* Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * In a guest, as the user: `region write TEXT` at 1 MiB of the memory that it shares; `region count TEXT` says how
 * often it is anywhere in it; `region used` how many of its bytes are not zero.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
    struct stat facts;
    int fd = open("/dev/vtorque-shm", O_RDWR);
    if (argc < 2 || fd < 0 || fstat(fd, &facts) < 0) {
        perror("open");
        return 1;
    }
    char *memory = mmap(NULL, facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    const char *text = argc > 2 ? argv[2] : "";
    long found = 0, used = 0;
    if (strcmp(argv[1], "write") == 0) {
        memcpy(memory + (1 << 20), text, strlen(text));
        return 0;
    }
    for (long at = 0; at < facts.st_size; at++) {
        used += memory[at] != 0;
        found += *text && at + (long)strlen(text) <= facts.st_size && memcmp(memory + at, text, strlen(text)) == 0;
    }
    printf("%ld\n", *text ? found : used);
    return 0;
}
