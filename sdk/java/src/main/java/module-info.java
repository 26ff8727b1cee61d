/** The client of the Belay lock server. */
module belay {
    exports belay;
}
