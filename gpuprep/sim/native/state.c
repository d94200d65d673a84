/* Reading, locking and writing the state file; who may call.
 *
 * Without _GNU_SOURCE: with it, a new glibc gives strtol and sscanf names that an older machine's glibc has not. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#ifndef SIM_RUN
#define SIM_RUN "/run/gpuprep-sim"
#endif
#define MAX_GPUS 16
#define MAX_ENTRIES 4096

struct entry {
    int gpu;
    char *key;
    char *value;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char slots[MAX_GPUS];
static struct entry entries[MAX_ENTRIES];
static int entry_count;
static int state_fd = -1;
static int clients_fd = -1;
static bool dirty;
static int users; /* nvmlInit calls without their nvmlShutdown */
static char library_version[64];

/* Tests name their own folder; a program with more rights than its user must not listen to that. */
static const char *trusted_setting(const char *name)
{
    return geteuid() == getuid() && getegid() == getgid() ? getenv(name) : NULL;
}

const char *state_path(const char *name, char *into, size_t size)
{
    const char *folder = trusted_setting("GPUPREP_SIM_NVML");
    snprintf(into, size, "%s/%s", folder ? folder : SIM_RUN "/nvml", name);
    return into;
}

/* The version of the library that this one stands for: the dlopen shim has seen its file name. */
__attribute__((visibility("default"))) void gpuprep_sim_library_version(const char *version)
{
    snprintf(library_version, sizeof library_version, "%s", version);
}

static void drop_entries(void)
{
    for (int i = 0; i < entry_count; i++) {
        free(entries[i].key);
        free(entries[i].value);
    }
    entry_count = 0;
}

static char *trimmed(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return strndup(from, (size_t)(to - from));
}

static void parse(const char *content)
{
    int gpu = -1;
    drop_entries();
    for (const char *line = content; *line != '\0';) {
        const char *end = line + strcspn(line, "\n");
        const char *equals = memchr(line, '=', (size_t)(end - line));
        if (*line == '[') {
            gpu = -1;
            sscanf(line, "[gpu.%d]", &gpu);
        } else if (equals != NULL && *line != '#' && entry_count < MAX_ENTRIES) {
            entries[entry_count++] = (struct entry){gpu, trimmed(line, equals), trimmed(equals + 1, end)};
        }
        line = *end == '\0' ? end : end + 1;
    }
}

static bool load(bool writing)
{
    char path[512];
    state_fd = open(state_path("state", path, sizeof path), (writing ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (state_fd < 0)
        return false;
    while (flock(state_fd, writing ? LOCK_EX : LOCK_SH) != 0 && errno == EINTR)
        ;
    off_t size = lseek(state_fd, 0, SEEK_END);
    char *content = malloc((size_t)size + 1);
    ssize_t length = pread(state_fd, content, (size_t)size, 0);
    content[length < 0 ? 0 : length] = '\0';
    parse(content);
    free(content);
    return true;
}

static void save(void)
{
    char *content = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&content, &size);
    int last = -2;
    for (int gpu = -1; gpu < MAX_GPUS; gpu++) {
        for (int i = 0; i < entry_count; i++) {
            if (entries[i].gpu != gpu || entries[i].value == NULL)
                continue;
            if (last != gpu) {
                if (gpu < 0)
                    fprintf(out, "[system]\n");
                else
                    fprintf(out, "[gpu.%d]\n", gpu);
            }
            last = gpu;
            fprintf(out, "%s = %s\n", entries[i].key, entries[i].value);
        }
    }
    fclose(out);
    if (pwrite(state_fd, content, size, 0) == (ssize_t)size)
        (void)!ftruncate(state_fd, (off_t)size);
    free(content);
}

static void unload(void)
{
    if (dirty)
        save();
    dirty = false;
    if (state_fd >= 0)
        close(state_fd); /* lets the lock go */
    state_fd = -1;
}

static struct entry *find(int gpu, const char *key)
{
    for (int i = 0; i < entry_count; i++)
        if (entries[i].gpu == gpu && strcmp(entries[i].key, key) == 0)
            return &entries[i];
    return NULL;
}

const char *text(int gpu, const char *key)
{
    struct entry *entry = find(gpu, key);
    return entry == NULL || entry->value == NULL ? "" : entry->value;
}

bool has(int gpu, const char *key)
{
    return text(gpu, key)[0] != '\0';
}

long number(int gpu, const char *key, long otherwise)
{
    return has(gpu, key) ? strtol(text(gpu, key), NULL, 0) : otherwise;
}

void forget(int gpu, const char *key)
{
    struct entry *entry = find(gpu, key);
    if (entry != NULL && entry->value != NULL) {
        free(entry->value);
        entry->value = NULL;
        dirty = true;
    }
}

void set_number(int gpu, const char *key, long value)
{
    char written[32];
    snprintf(written, sizeof written, "%ld", value);
    struct entry *entry = find(gpu, key);
    if (entry == NULL && entry_count < MAX_ENTRIES) {
        entry = &entries[entry_count++];
        *entry = (struct entry){gpu, strdup(key), NULL};
    }
    if (entry == NULL)
        return;
    free(entry->value);
    entry->value = strdup(written);
    dirty = true;
}

int gpu_count(void)
{
    int count = 0;
    while (count < MAX_GPUS && has(count, "name"))
        count++;
    return count;
}

nvmlDevice_t handle_of(int gpu)
{
    return (nvmlDevice_t)(void *)&slots[gpu];
}

bool branch_at_least(int branch)
{
    return number(-1, "driver", 0) >= branch;
}

static nvmlReturn_t driver_state(void)
{
    const char *loaded = text(-1, "driver");
    const char *forced = trusted_setting("GPUPREP_SIM_LIBRARY");
    const char *library = forced ? forced : library_version;
    if (loaded[0] == '\0')
        return DRIVER_NOT_LOADED;
    if (library[0] != '\0' && strcmp(library, loaded) != 0)
        return LIB_RM_VERSION_MISMATCH;
    return OK;
}

struct call enter_system(bool writing)
{
    struct call call = {OK, -1};
    pthread_mutex_lock(&mutex);
    if (users == 0)
        call.result = UNINITIALIZED;
    else if (writing && geteuid() != 0)
        call.result = NO_PERMISSION;
    else if (!load(writing))
        call.result = DRIVER_NOT_LOADED;
    if (call.result != OK)
        leave(&call);
    return call;
}

struct call enter_gpu(nvmlDevice_t device, bool writing)
{
    struct call call = enter_system(false);
    if (call.result != OK)
        return call;
    long slot = (char *)device - slots;
    if (device == NULL || slot < 0 || slot >= gpu_count())
        call.result = INVALID_ARGUMENT;
    else if (number((int)slot, "fault_gpu_lost", 0))
        call.result = GPU_IS_LOST;
    else if (writing && geteuid() != 0)
        call.result = NO_PERMISSION;
    else if (writing) {
        unload();
        if (!load(true))
            call.result = DRIVER_NOT_LOADED;
    }
    if (call.result == OK)
        call.gpu = (int)slot;
    else
        leave(&call);
    return call;
}

void leave(struct call *call)
{
    /* -2 marks a call that has left: one that failed in enter_*() is left there, and its caller's cleanup comes again. */
    if (call->gpu == -2)
        return;
    call->gpu = -2;
    unload();
    pthread_mutex_unlock(&mutex);
}

nvmlReturn_t copy_text(const char *value, char *into, unsigned int size)
{
    if (into == NULL)
        return INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(into, value);
    return OK;
}

nvmlReturn_t give_text(int gpu, const char *key, char *into, unsigned int size)
{
    return has(gpu, key) ? copy_text(text(gpu, key), into, size) : NOT_SUPPORTED;
}

nvmlReturn_t give_number(int gpu, const char *key, unsigned int *into)
{
    if (into == NULL)
        return INVALID_ARGUMENT;
    if (!has(gpu, key))
        return NOT_SUPPORTED;
    *into = (unsigned int)number(gpu, key, 0);
    return OK;
}

nvmlReturn_t give_list(int gpu, const char *key, unsigned int *count, unsigned int *into)
{
    if (count == NULL)
        return INVALID_ARGUMENT;
    if (!has(gpu, key))
        return NOT_SUPPORTED;
    unsigned int found = 0;
    char *end;
    for (const char *at = text(gpu, key); *at != '\0'; at = end) {
        unsigned long value = strtoul(at, &end, 10);
        if (end == at)
            break;
        if (into != NULL && found < *count)
            into[found] = (unsigned int)value;
        found++;
    }
    bool fits = into != NULL && found <= *count;
    *count = found;
    return fits ? OK : INSUFFICIENT_SIZE;
}

bool in_list(int gpu, const char *key, unsigned int value)
{
    char *end;
    for (const char *at = text(gpu, key); *at != '\0'; at = end) {
        unsigned long found = strtoul(at, &end, 10);
        if (end == at)
            break;
        if (found == value)
            return true;
    }
    return false;
}

/* The last client of a GPU without persistence mode takes the driver's state with it. */
static const char *const VOLATILE[] = {"app_graphics", "app_memory", "locked_graphics_min", "locked_graphics_max",
                                       "locked_memory_min", "locked_memory_max", "power_limit_mw", NULL};

void forget_settings(int gpu)
{
    for (int i = 0; VOLATILE[i] != NULL; i++)
        forget(gpu, VOLATILE[i]);
}

/* Where it answers false, this process keeps the lock alone until its next flock: nobody comes meanwhile. */
bool others_have_it_open(void)
{
    return clients_fd < 0 || geteuid() != 0 || flock(clients_fd, LOCK_EX | LOCK_NB) != 0;
}

static void forget_if_alone(void)
{
    if (others_have_it_open())
        return;
    if (load(true)) {
        for (int gpu = 0; gpu < gpu_count(); gpu++)
            if (number(gpu, "persistence", 0) == 0)
                forget_settings(gpu);
        unload();
    }
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    nvmlReturn_t result = OK;
    pthread_mutex_lock(&mutex);
    if (users == 0) {
        result = load(false) ? driver_state() : DRIVER_NOT_LOADED;
        unload();
        if (result == OK) {
            char path[512];
            clients_fd = open(state_path("clients", path, sizeof path), O_RDONLY | O_CLOEXEC);
            forget_if_alone();
            if (clients_fd >= 0)
                flock(clients_fd, LOCK_SH);
        }
    }
    if (result == OK)
        users++;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = UNINITIALIZED;
    pthread_mutex_lock(&mutex);
    if (users > 0) {
        result = OK;
        if (--users == 0) {
            forget_if_alone();
            if (clients_fd >= 0)
                close(clients_fd);
            clients_fd = -1;
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}
