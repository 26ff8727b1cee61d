/* belay_version.h - the version of Belay: of the server, the command line and the libraries. */
#ifndef BELAY_VERSION_H
#define BELAY_VERSION_H

#define BELAY_VERSION "0.2.0"
#endif
