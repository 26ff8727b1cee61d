/* version.h - what this build calls itself; include/belay.h says the same to the outside. */
#ifndef BELAY_BASE_VERSION_H
#define BELAY_BASE_VERSION_H
#ifndef BELAY_VERSION
#define BELAY_VERSION "0.1.0"
#endif
#endif
