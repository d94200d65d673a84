/* What runs on the GPUs now: files <gpu>.<pid>.<any> of the folder `loads` (agent/gpu/simstate.py writes them), each locked by the
 * program whose work it is for as long as it lives. NVML shows their values in place of the idle ones. */
#include "state.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static bool read_living(const char *folder, const char *name, char *into, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool alive = flock(fd, LOCK_SH | LOCK_NB) != 0;
    ssize_t length = alive ? pread(fd, into, size - 1, 0) : -1;
    close(fd);
    if (length < 0)
        return false;
    into[length] = '\0';
    return true;
}

static long value_in(const char *content, const char *key, long otherwise)
{
    size_t length = strlen(key);
    for (const char *line = content; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && strncmp(line + length, " = ", 3) == 0)
            return strtol(line + length + 3, NULL, 0);
    }
    return otherwise;
}

int loads(int gpu, struct load *into, int room)
{
    char folder[512], content[1024];
    int found = 0;
    DIR *listing = opendir(state_path("loads", folder, sizeof folder));
    struct dirent *entry;
    while (listing != NULL && found < room && (entry = readdir(listing)) != NULL) {
        int owner;
        long pid;
        if (sscanf(entry->d_name, "%d.%ld.", &owner, &pid) != 2 || owner != gpu)
            continue;
        if (!read_living(folder, entry->d_name, content, sizeof content))
            continue;
        into[found++] = (struct load){
            .pid = pid,
            .graphics = value_in(content, "graphics", 0),
            .memory = value_in(content, "memory", 0),
            .power_mw = value_in(content, "power_mw", 0),
            .temperature = value_in(content, "temperature", 0),
            .event_reasons = value_in(content, "event_reasons", 0),
            .utilization = value_in(content, "utilization", 0),
            .memory_mib = value_in(content, "memory_mib", 0),
            .encoder = value_in(content, "encoder", 0),
            .decoder = value_in(content, "decoder", 0),
            .codec = value_in(content, "encoder_codec", -1),
            .width = value_in(content, "encoder_width", 0),
            .height = value_in(content, "encoder_height", 0),
            .fps = value_in(content, "encoder_fps", 0),
        };
    }
    if (listing != NULL)
        closedir(listing);
    return found;
}

static long higher(long one, long other)
{
    return one > other ? one : other;
}

struct load load_of(int gpu, int *count)
{
    struct load all[MAX_LOADS], sum = {.codec = -1};
    *count = loads(gpu, all, MAX_LOADS);
    for (int i = 0; i < *count; i++) {
        sum.graphics = higher(sum.graphics, all[i].graphics);
        sum.memory = higher(sum.memory, all[i].memory);
        sum.power_mw = higher(sum.power_mw, all[i].power_mw);
        sum.temperature = higher(sum.temperature, all[i].temperature);
        sum.event_reasons |= all[i].event_reasons;
        sum.utilization += all[i].utilization;
        sum.memory_mib += all[i].memory_mib;
        sum.encoder += all[i].encoder;
        sum.decoder += all[i].decoder;
    }
    return sum;
}

/* Processes */

struct process_v1 { unsigned int pid; unsigned long long memory; };
struct process_v2 { unsigned int pid; unsigned long long memory; unsigned int gpu_instance, compute_instance; };

static nvmlReturn_t processes(nvmlDevice_t device, unsigned int *count, void *list, size_t size)
{
    GPU(device);
    struct load all[MAX_LOADS];
    struct process_v2 found[MAX_LOADS];
    unsigned int number_found = 0;
    int every = loads(call.gpu, all, MAX_LOADS);
    if (count == NULL)
        return INVALID_ARGUMENT;
    for (int i = 0; i < every; i++) {
        unsigned int at = 0;
        while (at < number_found && found[at].pid != (unsigned int)all[i].pid)
            at++;
        if (at == number_found)
            found[number_found++] = (struct process_v2){(unsigned int)all[i].pid, 0, ~0U, ~0U};
        found[at].memory += (unsigned long long)all[i].memory_mib << 20;
    }
    bool fits = number_found <= *count && (list != NULL || number_found == 0);
    for (unsigned int i = 0; fits && i < number_found; i++)
        memcpy((char *)list + i * size, &found[i], size);
    *count = number_found;
    return fits ? OK : INSUFFICIENT_SIZE;
}

#define PROCESSES(function, form) \
    nvmlReturn_t function(nvmlDevice_t d, unsigned int *n, void *l) { return processes(d, n, l, sizeof(struct form)); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, process_v1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, process_v2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, process_v2)

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int size)
{
    SYSTEM();
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NOT_FOUND;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0'; /* the first word of the command line; its words end with a zero byte */
    return copy_text(line, name, size);
}

/* Encoder sessions */

struct session { unsigned int id, pid, vgpu; int codec; unsigned int width, height, fps, latency; };

static unsigned int sessions(int gpu, struct session *into)
{
    struct load all[MAX_LOADS];
    unsigned int found = 0;
    int every = loads(gpu, all, MAX_LOADS);
    for (int i = 0; i < every; i++)
        if (all[i].codec >= 0)
            into[found] = (struct session){found + 1, (unsigned int)all[i].pid, 0, (int)all[i].codec, (unsigned int)all[i].width,
                                           (unsigned int)all[i].height, (unsigned int)all[i].fps, 4000}, found++;
    return found;
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *count, unsigned int *fps, unsigned int *latency)
{
    GPU(device);
    struct session found[MAX_LOADS];
    *count = sessions(call.gpu, found);
    *fps = *latency = 0;
    for (unsigned int i = 0; i < *count; i++) {
        *fps += found[i].fps / *count;
        *latency = found[i].latency;
    }
    return OK;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count, struct session *into)
{
    GPU(device);
    struct session found[MAX_LOADS];
    unsigned int every = sessions(call.gpu, found);
    bool fits = into == NULL || every <= *count;
    if (into != NULL && fits)
        memcpy(into, found, every * sizeof *into);
    *count = every;
    return fits ? OK : INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t device, int codec, unsigned int *capacity)
{
    GPU(device);
    (void)codec;
    *capacity = 100; /* chips without an encoder answer the same */
    return OK;
}
