/* How many GPUs there are, and which: the device nodes decide, as they do for the real libraries in a container. And the
 * release of the kernel's driver decides which CUDA it has.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LAB_MOST = 16 };

/* The minor numbers of the GPUs that have a node here; gives how many. */
static int lab_gpus(int minors[LAB_MOST])
{
    int count = 0;

    for (int minor = 0; minor < LAB_MOST; minor++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", minor);
        if (!access(path, F_OK))
            minors[count++] = minor;
    }
    return count;
}

/* Why the driver cannot be spoken to: 0, ENOENT, EPERM where the container's device rules deny it, EACCES.
 * Nobody answers behind the node, which is ENXIO, once the rules have let a program through.
 */
static int lab_refusal(void)
{
    int file = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

    if (file < 0)
        return errno == ENXIO ? 0 : errno;
    close(file);
    return 0;
}

/* "580.159.04"; "" where no driver is loaded. */
static const char *lab_driver(void)
{
    static char release[32];
    char line[256];
    FILE *file = fopen("/proc/driver/nvidia/version", "r");

    if (!file)
        return "";
    if (fgets(line, sizeof line, file))
        sscanf(line, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 %31s", release);
    fclose(file);
    return release;
}

/* The CUDA that a driver's branch came with: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ */
static int lab_cuda(void)
{
    static const int branches[][2] = {{580, 13000}, {575, 12090}, {570, 12080}, {560, 12060}, {550, 12040}, {535, 12020},
                                      {525, 12000}, {515, 11070}, {470, 11040}, {450, 11000}};
    int branch = atoi(lab_driver());

    for (size_t i = 0; i < sizeof branches / sizeof *branches; i++)
        if (branch >= branches[i][0])
            return branches[i][1];
    return 13000;
}
