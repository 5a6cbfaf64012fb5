/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What a guest of OSv is to vTorque, on Linux, for tests: no OSv, but what of OSv's own sources vTorque relies on
 * (modules/httpserver-api, modules/cloud-init, core/commands.cc; master of 2026).  `osv-stand-in USER-DATA`:
 *
 *   its cloud-init      hostname, files, and calls of the API, in the order of the file; of YAML it knows the lines
 *                       that templates/osv/user-data.j2 writes, and gives up at whatever else there is
 *   its REST API        /os/version, /os/cmdline, /env/NAME, /app/ and /app/finished on port 8000; anything else is 404
 *   its root            with --rootfs=rofs what is in the second partition of the first disk, read by its own reader
 *                       (fs/rofs, fs/devfs/device.cc): read-only, and mounted as its /etc/fstab says; then nothing of
 *                       this program's own Linux is there
 *   its command line    options, then what is run: with --verbose the kernel reports a program's status
 *
 * A program is a shared object whose main is called.  Each has a process of its own here and a thread there; so one
 * that calls exit() powers the guest off, as OSv does.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORT = 8000, MOST = 1 << 16, WORDS = 256, PROGRAMS = 64 };

struct program { pid_t pid; int returned; };
static char command_line[4096];
static int verbose;
static struct program programs[PROGRAMS];
static int count_of_programs;

struct answer { int status; char text[MOST]; };

static void fail(struct answer *answer, int status, const char *why)
{
    answer->status = status;
    snprintf(answer->text, sizeof answer->text, "{\"message\": \"%s\", \"code\": %d}", why, status);
}

static void succeed(struct answer *answer, const char *text)
{
    size_t at = 0;
    answer->status = 200;
    answer->text[at++] = '"';
    for (; *text && at < sizeof answer->text - 8; text++) {
        unsigned char c = *text;
        if (c == '"' || c == '\\')
            at += sprintf(answer->text + at, "\\%c", c);
        else if (c < 0x20)
            at += sprintf(answer->text + at, "\\u%04x", c);
        else
            answer->text[at++] = c;
    }
    strcpy(answer->text + at, "\"");
}

/* ---- the root ---- */

static void power_off(const char *why, const char *what)
{
    printf("%s %s. Powering off.\n", why, what);
    fflush(NULL);
    reboot(RB_POWER_OFF);
}

static unsigned long long number(const unsigned char *from, int size)
{
    unsigned long long value = 0;
    while (size--)
        value = value << 8 | from[size];
    return value;
}

struct rofs { int fd; off_t begin; unsigned long long entries, links, inodes; const unsigned char **entry, **link, *inode; };

static void read_disk(struct rofs *fs, void *to, size_t size, off_t at)
{
    if (pread(fs->fd, to, size, at) != (ssize_t)size)
        power_off("Could not read the disk:", strerror(errno));
}

static void copy_file(struct rofs *fs, int target, unsigned long long block, unsigned long long size)
{
    static char piece[1 << 16];
    off_t at = fs->begin + 512 * block;
    while (size) {
        size_t count = size < sizeof piece ? size : sizeof piece;
        read_disk(fs, piece, count, at);
        if (write(target, piece, count) != (ssize_t)count)
            power_off("Could not hold the root:", strerror(errno));
        at += count;
        size -= count;
    }
}

static void place(struct rofs *fs, const char *path, unsigned long long inode)
{
    const unsigned char *row = fs->inode + 32 * (inode - 1);
    unsigned long long mode = number(row, 8), offset = number(row + 16, 8), count = number(row + 24, 8);
    char below[4352], target[4096];
    if (inode < 1 || inode > fs->inodes || number(row + 8, 8) != inode)
        power_off("A broken inode of", path);
    if (mode == 0x4000) {
        if (*path && mkdir(path, 0755) != 0 && errno != EEXIST)
            power_off("Could not make", path);
        for (unsigned long long i = offset; i < offset + count && i < fs->entries; i++) {
            int length = number(fs->entry[i] + 8, 2);
            snprintf(below, sizeof below, "%s/%.*s", path, length, fs->entry[i] + 10);
            place(fs, below, number(fs->entry[i], 8));
        }
    } else if (mode == 0x8000) {
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        if (file < 0)
            power_off("Could not make", path);
        copy_file(fs, file, offset, count);
        close(file);
    } else if (mode == 0xA000 && offset < fs->links) {
        snprintf(target, sizeof target, "%.*s", (int)number(fs->link[offset], 2), fs->link[offset] + 2);
        if (symlink(target, path) != 0)
            power_off("Could not link", path);
    } else
        power_off("An inode of no kind:", path);
}

/* What mount_rootfs("/dev/vblk0.1", "rofs") finds; it becomes the root. */
static void mount_rofs(const char *disk)
{
    unsigned char head[512], super[64], *tables;
    struct rofs fs = {.fd = open(disk, O_RDONLY | O_CLOEXEC)};
    read_disk(&fs, head, sizeof head, 0);
    const unsigned char *row = head + 446 + 16;
    if (head[510] != 0x55 || head[511] != 0xaa || !row[4] || !row[2])
        power_off("No partition 1 on", disk);
    fs.begin = 512 * number(row + 8, 4);
    read_disk(&fs, super, sizeof super, fs.begin);
    if (number(super, 8) != 0xDEADBEAD || number(super + 8, 8) != 1 || number(super + 16, 8) != 512)
        power_off("Could not mount rofs root filesystem of", disk);
    size_t size = 512 * number(super + 32, 8);
    fs.entries = number(super + 40, 8), fs.links = number(super + 48, 8), fs.inodes = number(super + 56, 8);
    tables = malloc(size + 1);
    fs.entry = calloc(fs.entries + 1, sizeof *fs.entry), fs.link = calloc(fs.links + 1, sizeof *fs.link);
    if (!tables || !fs.entry || !fs.link)
        power_off("No memory for the tables of", disk);
    read_disk(&fs, tables, size, fs.begin + 512 * number(super + 24, 8));
    unsigned char *at = tables;
    for (unsigned long long i = 0; i < fs.entries; i++, at += 10 + number(at + 8, 2))
        fs.entry[i] = at;
    for (unsigned long long i = 0; i < fs.links; i++, at += 2 + number(at, 2))
        fs.link[i] = at;
    fs.inode = at;
    if (at + 32 * fs.inodes > tables + size)
        power_off("Tables that are cut off on", disk);
    mkdir("/rofs", 0755);
    if (mount("rofs", "/rofs", "tmpfs", 0, "size=90%") != 0)
        power_off("Could not hold the root:", strerror(errno));
    place(&fs, "/rofs", 1);
    close(fs.fd);
    free(tables), free(fs.entry), free(fs.link);
    if (mount(NULL, "/rofs", NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0 || chroot("/rofs") != 0 || chdir("/") != 0)
        power_off("Could not change the root:", strerror(errno));
    printf("VFS: mounting rofs at /rofs\n");
}

/* As pivot_rootfs does: what cannot be mounted is said, and no more. */
static void mount_fstab(void)
{
    char line[4096], what[256], where[2048], kind[64];
    FILE *file = fopen("/etc/fstab", "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *here;
        if (sscanf(line, "%255s %2047s %63s", what, where, kind) != 3 || strcmp(where, "/") == 0)
            continue;
        here = strcmp(kind, "devfs") == 0 ? "devtmpfs" : strcmp(kind, "procfs") == 0 ? "proc" :
               strcmp(kind, "sysfs") == 0 ? "sysfs" : strcmp(kind, "ramfs") == 0 ? "tmpfs" : kind;
        if (mount("none", where, here, 0, NULL) != 0)
            printf("failed to mount %s, error = %s\n", kind, strerror(errno));
    }
    if (file)
        fclose(file);
}

/* Options first, a backslash before a blank that does not end one; then what is run. */
static int boot(void)
{
    char *at = command_line, word[4096];
    int rofs = 0;
    FILE *file = fopen("/proc/cmdline", "r");
    if (!file || !fgets(command_line, sizeof command_line, file))
        power_off("No command line:", strerror(errno));
    fclose(file);
    command_line[strcspn(command_line, "\n")] = 0;
    /* those of the Linux that stands in are before the first of OSv's */
    if (!(at = strstr(command_line, "--rootfs=rofs")))
        return 0;
    memmove(command_line, at, strlen(at) + 1);
    for (at = command_line; *at == '-';) {
        char *to = word;
        while (*at && *at != ' ')
            at += *at == '\\' && at[1], *to++ = *at++;
        *to = 0;
        while (*at == ' ')
            at++;
        rofs |= strcmp(word, "--rootfs=rofs") == 0;
        verbose |= strcmp(word, "--verbose") == 0;
        if (strncmp(word, "--env=", 6) == 0)
            putenv(strdup(word + 6));
    }
    if (rofs)
        mount_rofs("/dev/vda"), mount_fstab();
    snprintf(word, sizeof word, "%s", at);
    word[strcspn(word, " ")] = 0;
    if (access(word, R_OK) != 0)
        power_off("Failed to load object:", word);
    return 1;
}

/* ---- programs ---- */

/* OSv's command line: blanks, quotes, a backslash before what it keeps; a $ begins a variable to the word's end. */
static int split(const char *line, char words[][4096])
{
    static const char escaped[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
    int count = 0;
    while (*line) {
        char plain[4096], *to = plain;
        while (*line == ' ')
            line++;
        if (!*line)
            break;
        int quoted = *line == '"';
        line += quoted;
        while (*line && (quoted ? *line != '"' : *line != ' ') && to < plain + sizeof plain - 1) {
            const char *known = *line == '\\' && line[1] ? strchr(escaped, line[1]) : NULL;
            if (!quoted && strchr(";&!", *line))
                return -1;
            *to++ = known ? meant[known - escaped] : *line;
            line += known ? 2 : 1;
        }
        if (quoted && *line++ != '"')
            return -1;
        *to = 0;
        if (count == WORDS - 1)
            return -1;
        char *name = strchr(plain, '$'), *value = name ? getenv(name + 1) : NULL;
        if (name)
            *name = 0;
        snprintf(words[count++], 4096, "%s%.2000s", plain, value ? value : "");
    }
    return count;
}

static void start(const char *line, struct answer *answer)
{
    static char words[WORDS][4096];
    char *argv[WORDS + 1] = {0}, thread[32];
    int count = split(line, words), way[2];
    if (count < 1 || count_of_programs == PROGRAMS || access(words[0], R_OK) != 0 || pipe(way) != 0) {
        fail(answer, count < 1 ? 400 : 500, count < 1 ? "Bad formatted command" : "Failed to load object");
        return;
    }
    for (int i = 0; i < count; i++)
        argv[i] = words[i];
    pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 3; fd < 64; fd++)
            if (fd != way[1])
                close(fd);
        void *object = dlopen(argv[0], RTLD_NOW | RTLD_GLOBAL);
        int (*entry)(int, char **) = object ? (int (*)(int, char **))dlsym(object, "main") : NULL;
        int status = entry ? entry(count, argv) : 0;
        fflush(NULL);
        if (verbose && status)
            printf("program %s returned %d\n", argv[0], status), fflush(NULL);
        if (write(way[1], "r", 1) != 1)
            _exit(1);
        _exit(0);
    }
    close(way[1]);
    programs[count_of_programs++] = (struct program){.pid = pid, .returned = way[0]};
    snprintf(thread, sizeof thread, "%d", pid);
    succeed(answer, thread);
}

/* A program that has not returned and is gone has called exit() or died: that is the end of an OSv. */
static int finished(pid_t pid)
{
    for (int i = 0; i < count_of_programs; i++) {
        char word;
        if (programs[i].pid != pid)
            continue;
        if (waitpid(pid, NULL, WNOHANG) == 0)
            return 0;
        if (read(programs[i].returned, &word, 1) != 1) {
            sync();
            reboot(RB_POWER_OFF);
        }
        close(programs[i].returned);
        programs[i] = programs[--count_of_programs];
        return 1;
    }
    return 1;
}

/* ---- the API ---- */

static void decode(const char *from, size_t length, char *to)
{
    for (size_t i = 0; i < length; i++) {
        unsigned int code;
        if (from[i] == '%' && i + 2 < length + 0 && sscanf(from + i + 1, "%2x", &code) == 1) {
            *to++ = (char)code;
            i += 2;
        } else
            *to++ = from[i] == '+' ? ' ' : from[i];
    }
    *to = 0;
}

/* The value of a parameter of the query, decoded; NULL: it is not there, or it is empty, which is the same to OSv. */
static char *parameter(const char *query, const char *name, char *value)
{
    size_t length = strlen(name);
    while (query && *query) {
        size_t all = strcspn(query, "&");
        if (all > length && strncmp(query, name, length) == 0 && query[length] == '=') {
            decode(query + length + 1, all - length - 1, value);
            return *value ? value : NULL;
        }
        query += all + (query[all] == '&');
    }
    return NULL;
}

static void handle(const char *method, char *path, const char *query, struct answer *answer)
{
    static char value[MOST];
    size_t length = strlen(path);
    if (path[0] != '/' || strstr(path, "..")) {
        fail(answer, 400, "Bad Request");
        return;
    }
    if (length > 1 && path[length - 1] == '/')
        path[length - 1] = 0;
    int get = strcmp(method, "GET") == 0;
    if (get && strcmp(path, "/os/version") == 0)
        succeed(answer, "v0.57.0-stand-in");
    else if (get && strcmp(path, "/os/cmdline") == 0)
        succeed(answer, command_line);
    else if (strcmp(method, "PUT") == 0 && strcmp(path, "/app") == 0) {
        if (parameter(query, "command", value))
            start(value, answer);
        else
            fail(answer, 400, "Missing mandatory parameter 'command'");
    } else if (get && strcmp(path, "/app/finished") == 0) {
        if (parameter(query, "tid", value))
            succeed(answer, finished(atoi(value)) ? "1" : "0");
        else
            fail(answer, 400, "Missing mandatory parameter 'tid'");
    } else if (strncmp(path, "/env/", 5) == 0 && path[5] && !strchr(path + 5, '/')) {
        if (get) {
            char *found = getenv(path + 5);
            found ? succeed(answer, found) : fail(answer, 400, "No environment variable");
        } else if (strcmp(method, "POST") == 0) {
            if (!parameter(query, "val", value))
                fail(answer, 400, "Missing mandatory parameter 'val'");
            else if (setenv(path + 5, value, 1) != 0)
                fail(answer, 400, "invalid environment variable");
            else
                succeed(answer, "");
        } else if (strcmp(method, "DELETE") == 0) {
            unsetenv(path + 5);
            succeed(answer, "");
        } else
            fail(answer, 404, "Not found");
    } else
        fail(answer, 404, "Not found");
}

static void converse(int peer)
{
    static char request[MOST], path[MOST], head[256];
    static struct answer answer;
    struct timeval patience = {.tv_sec = 5};
    size_t length = 0;
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (length < sizeof request - 1) {
        ssize_t count = read(peer, request + length, sizeof request - 1 - length);
        if (count <= 0)
            return;
        request[length += count] = 0;
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    char *method = strtok(request, " "), *uri = strtok(NULL, " "), *version = strtok(NULL, "\r\n");
    if (!method || !uri || !version || strncmp(version, "HTTP/1.", 7) != 0)
        fail(&answer, 400, "Bad Request");
    else {
        char *query = strchr(uri, '?');
        decode(uri, query ? (size_t)(query - uri) : strlen(uri), path);
        handle(method, path, query ? query + 1 : NULL, &answer);
    }
    int size = snprintf(head, sizeof head,
        "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\nContent-Type: application/json\r\n\r\n",
        answer.status, answer.status == 200 ? "OK" : "Error", strlen(answer.text));
    if (write(peer, head, size) == size && write(peer, answer.text, strlen(answer.text)) < 0)
        perror("osv-stand-in");
}

/* ---- cloud-init ---- */

/* It throws then: what it has done stays, and so does the API, which is another program (main.cc). */
static jmp_buf given_up;

static void broken(const char *line)
{
    printf("cloud-init failed: %s\n", line);
    longjmp(given_up, 1);
}

/* A scalar of JSON: quotes, and the escapes that its writer uses for text of ASCII. */
static char *scalar(char *from, char *to)
{
    if (*from++ != '"')
        return NULL;
    for (; *from && *from != '"'; from++)
        if (*from != '\\')
            *to++ = *from;
        else
            switch (*++from) {
            case 'n': *to++ = '\n'; break;
            case 't': *to++ = '\t'; break;
            case '"': case '\\': case '/': *to++ = *from; break;
            default: return NULL;
            }
    *to = 0;
    return *from == '"' ? from + 1 : NULL;
}

static void make_file(char *path, const char *content)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    if (!file || fputs(content, file) < 0 || fclose(file) != 0)
        broken(path);
}

static void call(const char *method, char *path, const char *name, const char *value)
{
    static char query[3 * MOST];
    static struct answer answer;
    char *to = query + sprintf(query, "%s=", name);
    for (; *value; value++)
        to += sprintf(to, "%%%02x", (unsigned char)*value);
    handle(method, path, query, &answer);
    if (answer.status != 200)
        broken(answer.text);
}

static void configure(FILE *file)
{
    static char line[MOST], one[MOST], two[MOST], path[MOST];
    char part[32] = "", method[16] = "", key[32];
    while (fgets(line, sizeof line, file)) {
        int at = 0;
        char *rest;
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#')
            continue;
        if (strncmp(line, "hostname: ", 10) == 0 && scalar(line + 10, one)) {
            if (sethostname(one, strlen(one)) != 0)
                broken(line);
        } else if (strcmp(line, "files:") == 0 || strcmp(line, "run:") == 0)
            strcpy(part, line);
        else if (strcmp(part, "files:") == 0 && strncmp(line, "  ", 2) == 0 && (rest = scalar(line + 2, one)) &&
                 strncmp(rest, ": ", 2) == 0 && scalar(rest + 2, two))
            make_file(one, two);
        else if (strcmp(part, "run:") == 0 && sscanf(line, "- %15[A-Z]: %n", method, &at) == 1 && at &&
                 scalar(line + at, path))
            continue;
        else if (strcmp(part, "run:") == 0 && *method && sscanf(line, "  %31[a-z_]: %n", key, &at) == 1 && at &&
                 scalar(line + at, two)) {
            call(method, path, key, two);
            *method = 0;
        } else
            broken(line);
    }
}

static void run_cloud_init(FILE *seed, int composed)
{
    if (composed && (access("/init/00-cmdline", R_OK) != 0 || access("/usr/mgmt/cloud-init.so", R_OK) != 0 ||
                     access("/usr/bin/iso-read.so", R_OK) != 0))
        printf("no cloud-init in the image\n");
    else if (!seed)
        printf("cloud-init failed: no seed\n");
    else if (setjmp(given_up) == 0)
        configure(seed);
}

int main(int argc, char **argv)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(argc > 2 ? atoi(argv[2]) : PORT)};
    int yes = 1, listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (argc < 2 || bind(listening, (struct sockaddr *)&here, sizeof here) != 0 || listen(listening, 16) != 0) {
        perror("osv-stand-in");
        return 1;
    }
    FILE *seed = fopen(argv[1], "r");
    run_cloud_init(seed, boot());
    printf("Rest API server running on port %d\n", ntohs(here.sin_port));
    for (;;) {
        struct timeval tick = {.tv_sec = 1};
        fd_set one;
        FD_ZERO(&one);
        FD_SET(listening, &one);
        if (select(listening + 1, &one, NULL, NULL, &tick) == 1) {
            int peer = accept(listening, NULL, NULL);
            if (peer >= 0) {
                converse(peer);
                close(peer);
            }
        }
        for (int i = count_of_programs; i-- > 0;)
            finished(programs[i].pid);
    }
}
