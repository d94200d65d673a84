/* Clocks: application clocks, locked clocks, what is supported, what runs now. MHz. */
#include "state.h"

#include <stdio.h>

enum { GRAPHICS, SM, MEMORY, VIDEO };

/* The video clock follows the graphics clock, at about 93 % on Volta and Turing. */
static long video_clock(int gpu, long graphics)
{
    return graphics * number(gpu, "video_clock_percent", 93) / 100 / 15 * 15;
}

static nvmlReturn_t give_clock(int gpu, int type, const char *graphics, const char *memory, unsigned int *mhz)
{
    if (mhz == NULL || type < GRAPHICS || type > VIDEO)
        return INVALID_ARGUMENT;
    nvmlReturn_t result = give_number(gpu, type == MEMORY ? memory : graphics, mhz);
    if (result == OK && type == VIDEO)
        *mhz = (unsigned int)video_clock(gpu, *mhz);
    return result;
}

static bool removed(void)
{
    return number(-1, "application_clocks_removed", 0) != 0;
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, int type, unsigned int *mhz)
{
    GPU(device);
    return removed() ? DEPRECATED : give_clock(call.gpu, type, "default_graphics", "default_memory", mhz);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, int type, unsigned int *mhz)
{
    GPU(device);
    if (removed())
        return DEPRECATED;
    bool set = has(call.gpu, "app_graphics");
    return give_clock(call.gpu, type, set ? "app_graphics" : "default_graphics", set ? "app_memory" : "default_memory", mhz);
}

nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memory, unsigned int graphics)
{
    SET_GPU(device);
    char key[48];
    if (removed())
        return DEPRECATED;
    snprintf(key, sizeof key, "graphics_clocks_%u", memory);
    if (!in_list(call.gpu, "memory_clocks", memory) || !in_list(call.gpu, key, graphics))
        return INVALID_ARGUMENT;
    if (number(call.gpu, "fault_clocks_stuck", 0))
        return OK; /* the fault: the driver says yes and nothing changes */
    set_number(call.gpu, "app_memory", memory);
    set_number(call.gpu, "app_graphics", graphics);
    return OK;
}

nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    SET_GPU(device);
    if (removed())
        return DEPRECATED;
    forget(call.gpu, "app_memory");
    forget(call.gpu, "app_graphics");
    return OK;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *mhz)
{
    GPU(device);
    return give_list(call.gpu, "memory_clocks", count, mhz);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory, unsigned int *count, unsigned int *mhz)
{
    GPU(device);
    char key[48];
    snprintf(key, sizeof key, "graphics_clocks_%u", memory);
    return in_list(call.gpu, "memory_clocks", memory) ? give_list(call.gpu, key, count, mhz) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned int *mhz)
{
    GPU(device);
    return give_clock(call.gpu, type, "max_graphics", "max_memory", mhz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, int type, unsigned int *mhz)
{
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned int *mhz)
{
    GPU(device);
    nvmlReturn_t result = give_clock(call.gpu, type, "idle_graphics", "idle_memory", mhz);
    const char *least = type == MEMORY ? "locked_memory_min" : "locked_graphics_min";
    bool stuck = number(call.gpu, "fault_clocks_stuck", 0) != 0;
    if (result == OK && !stuck && number(call.gpu, least, 0) > (long)*mhz)
        *mhz = (unsigned int)number(call.gpu, least, 0);
    int working;
    struct load load = load_of(call.gpu, &working);
    long busy = type == MEMORY ? load.memory : type == VIDEO ? video_clock(call.gpu, load.graphics) : load.graphics;
    if (result == OK && busy > 0) /* work shows the clock that it gets, also where that is under a locked one */
        *mhz = (unsigned int)busy;
    return result;
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, int type, int which, unsigned int *mhz)
{
    switch (which) {
    case 0: return nvmlDeviceGetClockInfo(device, type, mhz);
    case 1: return nvmlDeviceGetApplicationsClock(device, type, mhz);
    case 2: return nvmlDeviceGetDefaultApplicationsClock(device, type, mhz);
    case 3: return nvmlDeviceGetMaxCustomerBoostClock(device, type, mhz);
    default: return INVALID_ARGUMENT;
    }
}

static nvmlReturn_t lock_clock(int gpu, const char *least_key, const char *most_key, unsigned int least, unsigned int most)
{
    if (least > most)
        return INVALID_ARGUMENT;
    set_number(gpu, least_key, least);
    set_number(gpu, most_key, most);
    return OK;
}

nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int least, unsigned int most)
{
    SET_GPU(device);
    return lock_clock(call.gpu, "locked_graphics_min", "locked_graphics_max", least, most);
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    SET_GPU(device);
    forget(call.gpu, "locked_graphics_min");
    forget(call.gpu, "locked_graphics_max");
    return OK;
}

nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int least, unsigned int most)
{
    SET_GPU(device);
    if (!number(call.gpu, "locks_memory", 0)) /* Ampere and newer */
        return NOT_SUPPORTED;
    return lock_clock(call.gpu, "locked_memory_min", "locked_memory_max", least, most);
}

nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    SET_GPU(device);
    if (!number(call.gpu, "locks_memory", 0))
        return NOT_SUPPORTED;
    forget(call.gpu, "locked_memory_min");
    forget(call.gpu, "locked_memory_max");
    return OK;
}
