package belay;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A method that fails by an exception. */
@Retention(RetentionPolicy.RUNTIME)
public @interface Test {}
