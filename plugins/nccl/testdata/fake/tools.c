// What both fakes use: complaints, injected errors, and the count of what has
// not been given back.

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

EXPORT void fake_die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    char name[64];
    int at, code, calls;
} injection;

static injection injections[16];
static int count = -1;

static void parse(void) {
    count = 0;
    const char *text = getenv("FAKE_FAIL");
    char *copy = strdup(text ? text : ""), *rest = copy, *item;
    while ((item = strsep(&rest, ",")) && *item) {
        injection *i = &injections[count++];
        char code[16];
        if (sscanf(item, "%63[^:]:%d:%15s", i->name, &i->at, code) != 3) fake_die("cannot read FAKE_FAIL=%s", text);
        i->code = strcmp(code, "hang") ? atoi(code) : -1;
    }
    free(copy);
}

EXPORT int fake_inject(const char *name) {
    int code = 0;
    pthread_mutex_lock(&lock);
    if (count < 0) parse();
    for (int i = 0; i < count; i++)
        if (!strcmp(injections[i].name, name) && ++injections[i].calls == injections[i].at) code = injections[i].code;
    pthread_mutex_unlock(&lock);
    while (code == -1) pause();
    return code;
}

static __thread unsigned dice;

EXPORT void fake_dawdle(void) {
    if (!dice) dice = (unsigned)(uintptr_t)&dice | 1;
    dice = dice * 1103515245u + 12345u;
    unsigned n = dice >> 16 & 63;
    if (n == 0) usleep(200);
    else if (n < 16) sched_yield();
}

EXPORT void fake_pause(int *turn) {
    if (++*turn < 50) sched_yield();
    else usleep(*turn < 200 ? 50 : 500);
}

static struct {
    const char *what;
    int held;
} held[16];

EXPORT void fake_track(const char *what, int change) {
    static int file = -1;
    const char *folder = getenv("FAKE_REPORT");
    pthread_mutex_lock(&lock);
    int i = 0;
    while (held[i].what && strcmp(held[i].what, what)) i++;
    held[i].what = what;
    held[i].held += change;
    if (folder) {
        char text[256];
        if (file < 0) {
            snprintf(text, sizeof text, "%s/%d", folder, getpid());
            file = open(text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        }
        int n = snprintf(text, sizeof text, "%13d %-33s\n", held[i].held, what);
        if (pwrite(file, text, n, (off_t)i * n) != n) fake_die("cannot report to %s", folder);
    }
    pthread_mutex_unlock(&lock);
}
