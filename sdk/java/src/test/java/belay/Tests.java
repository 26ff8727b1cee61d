package belay;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/** Runs the tests that have a part of their name among the arguments, or all; prints TAP. They want BELAY_ADDR. */
public final class Tests {
    private static int failed;

    private Tests() {}

    public static void main(String[] parts) throws Exception {
        for (Class<?> tests : List.of(WireTest.class, LockTest.class, StormTest.class, ClientTest.class,
                Class.forName("RecipesTest"))) {
            List<Method> methods = Arrays.stream(tests.getDeclaredMethods())
                    .filter(method -> method.isAnnotationPresent(Test.class))
                    .sorted(Comparator.comparing(Method::getName)).toList();
            for (Method method : methods) {
                String name = tests.getSimpleName() + "." + method.getName();
                if (parts.length == 0 || Arrays.stream(parts).anyMatch(name::contains)) {
                    run(name, tests, method);
                }
            }
        }
        ReadmeTest.run(Tests::judge);
        System.exit(failed == 0 ? 0 : 1);
    }

    private static void run(String name, Class<?> tests, Method method) {
        judge(name, () -> {
            var constructor = tests.getDeclaredConstructor();
            constructor.setAccessible(true);
            method.setAccessible(true);
            try {
                method.invoke(constructor.newInstance());
            } catch (InvocationTargetException e) {
                if (e.getCause() instanceof Exception usual) {
                    throw usual;
                }
                throw (Error) e.getCause();
            }
        });
    }

    static void judge(String name, Check.Work work) {
        try {
            work.run();
            System.out.println("ok - java: " + name);
        } catch (Exception | Error e) {
            failed++;
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            System.out.println("not ok - java: " + name);
            trace.toString().lines().forEach(line -> System.out.println("# " + line));
        }
    }
}
