/* Stands in for nvidia-persistenced's program (the package and its unit are real): holds the GPUs open through NVML, with
 * persistence mode on unless told otherwise, until it is told to end. */
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#define FOLDER "/var/run/nvidia-persistenced"
#define PID_FILE FOLDER "/nvidia-persistenced.pid"

typedef void *device;
static void *nvml;

static int call(const char *name)
{
    int (*function)(void) = (int (*)(void))dlsym(nvml, name);
    return function ? function() : 999;
}

static int set_persistence(int mode)
{
    unsigned int count = 0;
    int (*get_count)(unsigned int *) = (int (*)(unsigned int *))dlsym(nvml, "nvmlDeviceGetCount_v2");
    int (*get)(unsigned int, device *) = (int (*)(unsigned int, device *))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*set)(device, int) = (int (*)(device, int))dlsym(nvml, "nvmlDeviceSetPersistenceMode");
    int failed = 0;
    if (!get_count || !get || !set || get_count(&count) != 0)
        return 1;
    for (unsigned int i = 0; i < count; i++) {
        device handle;
        int result = get(i, &handle);
        if (result == 0)
            result = set(handle, mode);
        syslog(result ? LOG_ERR : LOG_NOTICE, "device %u - persistence mode %s%s.", i, mode ? "enabled" : "disabled",
               result ? " failed" : "");
        failed |= result;
    }
    return failed;
}

static void end_files(void)
{
    unlink(PID_FILE);
    unlink(FOLDER "/socket");
    rmdir(FOLDER);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"version", no_argument, 0, 'v'},      {"help", no_argument, 0, 'h'},
        {"verbose", no_argument, 0, 'V'},      {"user", required_argument, 0, 'u'},
        {"group", required_argument, 0, 'g'},  {"persistence-mode", no_argument, 0, 'p'},
        {"no-persistence-mode", no_argument, 0, 'P'}, {"uvm-persistence-mode", no_argument, 0, 'U'},
        {"no-uvm-persistence-mode", no_argument, 0, 'W'}, {"nvidia-cfg-path", required_argument, 0, 'c'}, {0, 0, 0, 0},
    };
    bool persistence = true, verbose = false;
    const char *user = NULL;
    for (int option; (option = getopt_long(argc, argv, "vhVu:g:", options, NULL)) != -1;) {
        switch (option) {
        case 'v': printf("nvidia-persistenced: stand-in of a simulated VM\n"); return 0;
        case 'h': printf("usage: nvidia-persistenced [--user USER] [--persistence-mode|--no-persistence-mode] [--verbose]\n"); return 0;
        case 'V': verbose = true; break;
        case 'u': user = optarg; break;
        case 'p': persistence = true; break;
        case 'P': persistence = false; break;
        case '?': return 1;
        default: break;
        }
    }
    openlog("nvidia-persistenced", LOG_PID, LOG_DAEMON);
    setlogmask(LOG_UPTO(verbose ? LOG_INFO : LOG_NOTICE));
    struct passwd *account = user ? getpwnam(user) : NULL;
    if (user && !account) {
        fprintf(stderr, "nvidia-persistenced failed to initialize. Failed to find user ID of user '%s'.\n", user);
        return 1;
    }
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml || call("nvmlInit_v2") != 0) {
        fprintf(stderr, "nvidia-persistenced failed to initialize. Check syslog for more details.\n");
        syslog(LOG_ERR, "Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) exist, "
                        "and that user %s has read and write permissions for those files.", user ? user : "0");
        return 1;
    }
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (mkdir(FOLDER, 0755) == 0 && account)
        (void)!chown(FOLDER, account->pw_uid, account->pw_gid);
    /* Before the start is reported, so that units ordered after this one find the mode set. NVML's hold on the GPUs is a
     * lock of an open file, which the child of daemon() inherits. */
    if (persistence)
        set_persistence(1);
    if (daemon(0, 0) != 0)
        return 1;
    FILE *pid_file = fopen(PID_FILE, "w");
    if (pid_file) {
        fprintf(pid_file, "%d\n", (int)getpid());
        fclose(pid_file);
    }
    syslog(LOG_NOTICE, "Started (%d)", (int)getpid());
    int received;
    sigwait(&ends, &received);
    if (persistence)
        set_persistence(0);
    call("nvmlShutdown");
    end_files();
    syslog(LOG_NOTICE, "Shutdown (%d)", (int)getpid());
    return 0;
}
