/* Preloaded, too: starting ffmpeg with work for the GPU starts the stand-in in its place (gpuprep/sim/guest/ffmpeg.py), for no
 * GPU is there to do the work. The installed file stays what it is, and so does what it says of itself (-encoders, -buildconf).
 * Without a loaded driver nothing is diverted: then the real program says what is missing.
 *
 * These functions are called between vfork(2) and exec: no memory from the heap, no lock, nothing that the parent would see. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SIM_RUN
#define SIM_RUN "/run/gpuprep-sim"
#endif
#define STAND_IN "/usr/lib/gpuprep-sim/ffmpeg"
#define LOADED_DRIVER SIM_RUN "/proc/driver/nvidia/version"
enum { LONGEST_PATH = 4096 };

typedef int (*spawn_function)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                              char *const[]);
static int (*next_execvpe)(const char *, char *const[], char *const[]);
static spawn_function next_posix_spawn, next_posix_spawnp;

__attribute__((constructor)) static void find_next(void)
{
    next_execvpe = (int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execvpe");
    next_posix_spawn = (spawn_function)dlsym(RTLD_NEXT, "posix_spawn");
    next_posix_spawnp = (spawn_function)dlsym(RTLD_NEXT, "posix_spawnp");
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool works_on_gpu(char *const words[])
{
    static const char *const marks[] = {"nvenc", "cuvid", "cuda", "nvdec", "_npp"};
    bool reads = false, gpu = false;
    for (int i = 1; words != NULL && words[0] != NULL && words[i] != NULL; i++) {
        reads = reads || strcmp(words[i], "-i") == 0;
        for (size_t m = 0; m < sizeof marks / sizeof *marks; m++)
            gpu = gpu || strstr(words[i], marks[m]) != NULL;
    }
    return reads && gpu;
}

/* The file behind a path, links followed: the link that /proc has for an open file. */
static bool canonical(const char *path, char *into)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return false;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, into, LONGEST_PATH - 1);
    close(fd);
    into[length < 0 ? 0 : length] = '\0';
    return length > 0;
}

static bool is_diverted(const char *path, char *const words[], char *real)
{
    int kept = errno;
    bool diverted = path != NULL && strcmp(base_of(path), "ffmpeg") == 0 && works_on_gpu(words) && strcmp(path, STAND_IN) != 0 &&
                    syscall(SYS_access, STAND_IN, X_OK) == 0 && syscall(SYS_access, LOADED_DRIVER, R_OK) == 0 &&
                    syscall(SYS_access, path, X_OK) == 0 && canonical(path, real);
    errno = kept;
    return diverted;
}

/* As execvp(3) finds it: false where there is none. */
static bool on_path(const char *name, char *into)
{
    const char *folders = getenv("PATH");
    if (strchr(name, '/') != NULL) {
        snprintf(into, LONGEST_PATH, "%s", name);
        return true;
    }
    if (folders == NULL || strcmp(name, "ffmpeg") != 0)
        return false;
    while (*folders != '\0') {
        size_t length = strcspn(folders, ":");
        snprintf(into, LONGEST_PATH, "%.*s/%s", (int)length, folders, name);
        if (length > 0 && syscall(SYS_access, into, X_OK) == 0)
            return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}

static size_t count(char *const words[])
{
    size_t found = 0;
    while (words[found] != NULL)
        found++;
    return found;
}

/* The stand-in's words: its own name, the real file, what the caller gave. */
#define DIVERTED(words, real) ({ \
    size_t given = count(words); \
    char **made = alloca((given + 2) * sizeof *made); \
    made[0] = (char *)STAND_IN; \
    made[1] = (real); \
    memcpy(made + 2, (words) + 1, given * sizeof *made); \
    made; })

int execve(const char *path, char *const words[], char *const environment[])
{
    char real[LONGEST_PATH];
    if (is_diverted(path, words, real))
        return (int)syscall(SYS_execve, STAND_IN, DIVERTED(words, real), environment);
    return (int)syscall(SYS_execve, path, words, environment);
}

int execv(const char *path, char *const words[])
{
    return execve(path, words, environ);
}

int execvpe(const char *name, char *const words[], char *const environment[])
{
    char path[LONGEST_PATH], real[LONGEST_PATH];
    if (on_path(name, path) && is_diverted(path, words, real))
        return (int)syscall(SYS_execve, STAND_IN, DIVERTED(words, real), environment);
    return next_execvpe(name, words, environment);
}

int execvp(const char *name, char *const words[])
{
    return execvpe(name, words, environ);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                char *const words[], char *const environment[])
{
    char real[LONGEST_PATH];
    if (is_diverted(path, words, real))
        return next_posix_spawn(pid, STAND_IN, actions, attributes, DIVERTED(words, real), environment);
    return next_posix_spawn(pid, path, actions, attributes, words, environment);
}

int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                 char *const words[], char *const environment[])
{
    char path[LONGEST_PATH], real[LONGEST_PATH];
    if (on_path(name, path) && is_diverted(path, words, real))
        return next_posix_spawn(pid, STAND_IN, actions, attributes, DIVERTED(words, real), environment);
    return next_posix_spawnp(pid, name, actions, attributes, words, environment);
}
