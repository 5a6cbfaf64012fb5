// Copyright (c) 2026, The vTorque authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// What this kernel adds to the time for the first sequence number of a TCP connection, for some connections that are
// the same in every guest.  Two kernels that share the secret of these numbers (net/core/secure_seq.c) print the same.
//
// A line "LOW WIDTH" for each: the number, modulo 2^32, is LOW or at most WIDTH above it, since the kernel reads its
// clock (a step each 64 ns) at a moment between two that are known here.  Needs no rights: it has a network of its own.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 8
#define TO 40000
#define FROM 41000

static uint32_t steps(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint32_t)(((uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec) >> 6);
}

static int bind_socket(int port)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int any = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return any < 0 || bind(any, (struct sockaddr *)&place, sizeof(place)) ? -1 : any;
}

static int print_connection(int number)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(TO + number))};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = bind_socket(TO + number), client = bind_socket(FROM + number);
    if (listener < 0 || client < 0 || listen(listener, 1))
        return perror("listen"), 1;
    uint32_t before = steps();
    if (connect(client, (struct sockaddr *)&place, sizeof(place)))
        return perror("connect"), 1;
    uint32_t width = steps() - before;
    int on = 1, queue = TCP_SEND_QUEUE;
    uint32_t next;
    socklen_t size = sizeof(next);
    if (setsockopt(client, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) ||
        setsockopt(client, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) ||
        getsockopt(client, IPPROTO_TCP, TCP_QUEUE_SEQ, &next, &size))
        return perror("TCP_REPAIR"), 1;
    printf("%u %u\n", next - 1 - before - width, width + 1); // a SYN takes one number
    return 0;
}

int main(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return perror("unshare"), 1;
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_flags = IFF_UP;
    if (any < 0 || ioctl(any, SIOCSIFFLAGS, &request))
        return perror("lo"), 1;
    for (int number = 0; number < CONNECTIONS; number++)
        if (print_connection(number))
            return 1;
    return 0;
}
