/* Processes other than computing ones, NVLink, events and field values. */
#include "state.h"
#include <stddef.h>
#include <time.h>

/* Processes: a simulated GPU has no displays and no MPS; loads.c has those that compute */

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count)
{
    GPU(device);
    *count = 0;
    return OK;
}

#define NO_PROCESSES(function) nvmlReturn_t function(nvmlDevice_t d, unsigned int *n, void *l) { (void)l; return no_processes(d, n); }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* NVLink: the links of a model are up, whatever is at their other end */

static nvmlReturn_t known_link(int gpu, unsigned int link, long *links)
{
    *links = number(gpu, "nvlinks", 0);
    if (*links == 0)
        return NOT_SUPPORTED;
    return link < (unsigned int)*links ? OK : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active)
{
    GPU(device);
    long links;
    nvmlReturn_t result = known_link(call.gpu, link, &links);
    if (result == OK)
        *active = link < (unsigned int)number(call.gpu, "nvlinks_up", links);
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    GPU(device);
    long links;
    nvmlReturn_t result = known_link(call.gpu, link, &links);
    if (result == OK)
        *version = links > 12 ? 4 : links > 6 ? 3 : 2;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, int *type)
{
    unsigned int version;
    nvmlReturn_t result = nvmlDeviceGetNvLinkVersion(device, link, &version);
    if (result == OK)
        *type = 2; /* a switch, as on boards with eight GPUs */
    return result;
}

/* Field values: a table of what has an answer; each of the others says by itself that it has none */

struct field { unsigned int id, scope; long long timestamp, latency; int type; nvmlReturn_t result; unsigned long long value; };

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };

static const struct { unsigned int id; const char *key; int type; } FIELDS[] = {
    {1, "ecc", UNSIGNED_INT}, {2, "ecc_pending", UNSIGNED_INT},
    {3, "ecc_corrected_volatile", UNSIGNED_LONG_LONG}, {4, "ecc_uncorrected_volatile", UNSIGNED_LONG_LONG},
    {5, "ecc_corrected", UNSIGNED_LONG_LONG}, {6, "ecc_uncorrected", UNSIGNED_LONG_LONG},
    {31, "retired_pages_pending", UNSIGNED_INT}, {82, "temperature_memory", UNSIGNED_INT},
    {143, "remapped_rows", UNSIGNED_INT}, {144, "remap_pending", UNSIGNED_INT}, {145, "remap_failed", UNSIGNED_INT},
    {187, "power_min_mw", UNSIGNED_INT}, {188, "power_max_mw", UNSIGNED_INT},
    {189, "power_default_mw", UNSIGNED_INT},
};
enum { POWER_CURRENT_LIMIT = 190, POWER_REQUESTED_LIMIT = 192, FIRST_POLICY_TIME = 74, LAST_POLICY_TIME = 81 };
enum { POWER_AVERAGE = 185, POWER_INSTANT = 186 };
enum { FIRST_REASON_TIME = 269, LAST_REASON_TIME = 271, SHUTDOWN_MARGIN = 193, SLOWDOWN_MARGIN = 194, PCIE_REPLAYS = 94 };
enum { RECOVERY_ACTION = 230 };

/* How long a reason has held the clocks down: a fault that is there now has been there since the computer started,
   and before it what the state says (held_..., seconds). */
static unsigned long long held_down(int gpu, unsigned int id)
{
    static const struct { unsigned int id; long bit; const char *key; } reasons[] = {
        {74, 0x04, "held_sw_power_cap"}, {76, 0x10, "held_sync_boost"}, {269, 0x20, "held_sw_thermal"},
        {270, 0x40, "held_hw_thermal"}, {271, 0x80, "held_power_brake"}};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].id != id)
            continue;
        unsigned long long held = (unsigned long long)number(gpu, reasons[i].key, 0) * 1000000000ULL;
        if (number(gpu, "event_reasons", 0) & reasons[i].bit)
            held += (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec;
        return held;
    }
    return 0;
}

static void answer(int gpu, struct field *field)
{
    unsigned int value = 0;
    field->result = NOT_SUPPORTED;
    field->type = UNSIGNED_INT;
    if (field->scope == 0 && (field->id == POWER_CURRENT_LIMIT || field->id == POWER_REQUESTED_LIMIT)) {
        long set = number(gpu, "power_limit_mw", number(gpu, "power_default_mw", 0));
        value = field->id == POWER_CURRENT_LIMIT ? enforced_power_limit(gpu) : (unsigned int)set;
        field->result = OK;
    } else if (field->scope == 0 && (field->id == POWER_AVERAGE || field->id == POWER_INSTANT)) {
        int working;
        long idle = number(gpu, "power_usage_mw", 0), busy = load_of(gpu, &working).power_mw;
        value = (unsigned int)(busy > idle ? busy : idle);
        field->result = OK;
    } else if ((field->id >= FIRST_POLICY_TIME && field->id <= LAST_POLICY_TIME) ||
               (field->id >= FIRST_REASON_TIME && field->id <= LAST_REASON_TIME)) {
        field->type = UNSIGNED_LONG_LONG;
        field->result = OK;
        field->value = held_down(gpu, field->id);
        return;
    }
    if (field->scope == 0 && field->id == RECOVERY_ACTION && branch_at_least(565)) {
        value = (unsigned int)number(gpu, "recovery_action", 0);
        field->result = OK;
    }
    if (field->scope == 0 && field->id == PCIE_REPLAYS) {
        value = pcie_replays(gpu);
        field->result = OK;
    }
    if (field->scope == 0 && (field->id == SHUTDOWN_MARGIN || field->id == SLOWDOWN_MARGIN) && has(gpu, "slowdown_after")) {
        long later = number(gpu, "temperature_shutdown", 0) - number(gpu, "temperature_slowdown", 0);
        value = (unsigned int)-(number(gpu, "slowdown_after", 0) + (field->id == SHUTDOWN_MARGIN ? later : 0));
        field->type = SIGNED_INT;
        field->result = OK;
    }
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) { /* scope 0 is the GPU, not its memory or module */
        if (FIELDS[i].id == field->id && field->scope == 0) {
            field->type = FIELDS[i].type;
            field->result = give_number(gpu, FIELDS[i].key, &value);
        }
    }
    field->value = value;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct field *fields)
{
    GPU(device);
    for (int i = 0; i < count; i++)
        answer(call.gpu, &fields[i]);
    return OK;
}

struct violation { unsigned long long reference, violation; };

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, int policy, struct violation *into)
{
    GPU(device);
    if (policy < 0 || into == NULL)
        return INVALID_ARGUMENT;
    into->reference = into->violation = 0;
    return OK;
}

/* Events: sets can be made and waited on; nothing ever happens */

enum { TIMEOUT = 10 };

nvmlReturn_t nvmlEventSetCreate(void **set)
{
    static char only;
    SYSTEM();
    *set = &only;
    return OK;
}

nvmlReturn_t nvmlEventSetFree(void *set)
{
    return set == NULL ? INVALID_ARGUMENT : OK;
}

nvmlReturn_t nvmlEventSetWait_v2(void *set, void *data, unsigned int milliseconds)
{
    (void)data;
    (void)milliseconds;
    return set == NULL ? INVALID_ARGUMENT : TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(void *set, void *data, unsigned int milliseconds)
{
    return nvmlEventSetWait_v2(set, data, milliseconds);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    GPU(device);
    *types = 0x1f;
    return OK;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, void *set)
{
    (void)types;
    GPU(device);
    return set == NULL ? INVALID_ARGUMENT : OK;
}
