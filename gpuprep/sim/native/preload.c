/* Preloaded into every process of a simulated VM (/etc/ld.so.preload).
 *
 * uname(2): the VM shares the kernel of its computer, for which Debian has no headers; the release of the VM's own kernel
 *   package is answered instead, so that /lib/modules, headers and DKMS agree.
 * dlopen(3) of libnvidia-ml.so: the stand-in is opened, but only where the real library would have been found: whether the
 *   package is installed and where the loader looks stays real.
 * /proc/modules: a kernel without loadable modules has no such file to mount a fake over.
 * The time of day: the VM has its computer's clock. A fault puts it ahead or behind by seconds, for programs that start after
 *   that; the times of files, and what waits until a time of day, stay the computer's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef SIM_RUN
#define SIM_RUN "/run/gpuprep-sim"
#endif
#define NVML_STAND_IN "/usr/lib/gpuprep-sim/libnvidia-ml.so.1"

static void read_line(const char *path, char *into, size_t size)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char text[256];
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0] != '\0' && strlen(text) < size)
        strcpy(into, text);
}

int uname(struct utsname *name)
{
    int result = (int)syscall(SYS_uname, name);
    if (result == 0) {
        read_line(SIM_RUN "/kernel/release", name->release, sizeof name->release);
        read_line(SIM_RUN "/kernel/version", name->version, sizeof name->version);
    }
    return result;
}

/* the time of day */

static int (*next_clock_gettime)(clockid_t, struct timespec *);
static long clock_ahead; /* seconds */

__attribute__((constructor)) static void find_clock(void)
{
    char text[32] = "0";
    read_line(SIM_RUN "/clock", text, sizeof text);
    clock_ahead = strtol(text, NULL, 10);
    next_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = next_clock_gettime ? next_clock_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += clock_ahead;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone; /* glibc writes zeros */
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0)
        return -1;
    if (into != NULL)
        *into = now.tv_sec;
    return now.tv_sec;
}

/* dlopen */

typedef void *(*dlopen_function)(const char *, int);

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static bool is_nvml(const char *name)
{
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    return strncmp(base, "libnvidia-ml.so", strlen("libnvidia-ml.so")) == 0 && strcmp(name, NVML_STAND_IN) != 0;
}

static void *open_stand_in(dlopen_function open_library, const char *name, int flags)
{
    void *library = open_library(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL || access(NVML_STAND_IN, R_OK) != 0)
        return library; /* not installed: dlerror() tells the truth */
    char version[64] = "";
    struct link_map *map = NULL;
    char path[4096];
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, path) != NULL) {
        const char *mark = strstr(path, "libnvidia-ml.so.");
        if (mark != NULL)
            snprintf(version, sizeof version, "%s", mark + strlen("libnvidia-ml.so."));
    }
    dlclose(library);
    void *stand_in = open_library(NVML_STAND_IN, flags);
    if (stand_in != NULL && strchr(version, '.') != NULL) {
        void (*tell)(const char *) = (void (*)(const char *))dlsym(stand_in, "gpuprep_sim_library_version");
        if (tell != NULL)
            tell(version);
    }
    return stand_in;
}

void *dlopen(const char *name, int flags)
{
    static dlopen_function real_dlopen;
    if (real_dlopen == NULL)
        real_dlopen = (dlopen_function)real("dlopen");
    if (name != NULL && is_nvml(name))
        return open_stand_in(real_dlopen, name, flags);
    /* Must stay a tail call: dlopen searches the RUNPATH of the library that its return address lies in. */
    return real_dlopen(name, flags);
}

/* /proc/modules */

static const char *redirected(const char *path)
{
    return path != NULL && strcmp(path, "/proc/modules") == 0 ? SIM_RUN "/proc/modules" : path;
}

#define OPENS(function) \
    int function(const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return (int)syscall(SYS_openat, AT_FDCWD, redirected(path), flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(function) \
    int function(int folder, const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return (int)syscall(SYS_openat, folder, redirected(path), flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

#define OPENS_STREAM(function) \
    FILE *function(const char *path, const char *mode) \
    { \
        FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) real(#function); \
        return next(redirected(path), mode); \
    }
OPENS_STREAM(fopen)
OPENS_STREAM(fopen64)

int access(const char *path, int mode)
{
    return (int)syscall(SYS_access, redirected(path), mode);
}

int stat(const char *path, struct stat *into)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, redirected(path), into, 0);
}

int stat64(const char *path, struct stat64 *into)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, redirected(path), into, 0);
}
