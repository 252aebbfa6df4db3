/* What a test wants of a stub library, read from the environment. Each variable is a list of NAME or NAME=NUMBER, separated by
 * commas; NAME is a function, or function@index for one GPU only.
 *
 *   STUB_CODES    the function fails with this code
 *   STUB_VALUES   the number that the function gives
 *   STUB_SLEEP    the function takes this many milliseconds
 *   STUB_CRASH    the function ends the process with SIGSEGV
 *   STUB_HANG     the function never returns
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The entry of a list that has this name: what follows it, or NULL. */
static const char *find(const char *variable, const char *name)
{
    const char *entry = getenv(variable);
    size_t length = strlen(name);

    while (entry && *entry) {
        if (!strncmp(entry, name, length) && strchr("=,", entry[length]))
            return entry + length;
        entry = strchr(entry, ',');
        entry = entry ? entry + 1 : NULL;
    }
    return NULL;
}

/* The same for function@index, then for function. */
static const char *find_for(const char *variable, const char *function, int index)
{
    char name[128];
    const char *entry;

    snprintf(name, sizeof name, "%s@%d", function, index);
    entry = find(variable, name);
    return entry ? entry : find(variable, function);
}

static long number_for(const char *variable, const char *function, int index, long otherwise)
{
    const char *entry = find_for(variable, function, index);

    return entry && *entry == '=' ? strtol(entry + 1, NULL, 0) : otherwise;
}

/* What happens when a function is called: the code that it has to return, if it returns at all. */
static int fate(const char *function, int index)
{
    usleep(1000 * number_for("STUB_SLEEP", function, index, 0));
    while (find_for("STUB_HANG", function, index))
        pause();
    if (find_for("STUB_CRASH", function, index))
        raise(SIGSEGV);
    return number_for("STUB_CODES", function, index, 0);
}

#define VALUE(index, otherwise) number_for("STUB_VALUES", __func__, index, otherwise)

/* The first line of every function. */
#define FATE(index)                       \
    do {                                  \
        int code = fate(__func__, index); \
        if (code)                         \
            return code;                  \
    } while (0)
