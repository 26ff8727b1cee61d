package belay;

import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/** Compiles and runs what README.md shows. */
final class ReadmeTest {
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
    private static final String HEAD = """
            import static belay.Txn.*;
            import static java.time.Duration.*;
            import belay.*;
            import java.nio.file.Path;
            import java.util.*;
            import java.util.concurrent.*;
            import java.util.concurrent.locks.Lock;
            public class Readme {
                static void save(long fence) {}
                static void stopTheWork() {}
                static void write(Object text) {}
            """;

    private ReadmeTest() {}

    static void run(BiConsumer<String, Check.Work> judge) throws Exception {
        List<String> blocks = new ArrayList<>();
        for (Matcher m = BLOCK.matcher(Files.readString(Path.of("README.md"))); m.find();) {
            blocks.add(m.group(1));
        }
        Path dir = Files.createTempDirectory("belay-readme");
        Path source = dir.resolve("Readme.java");
        StringBuilder text = new StringBuilder(HEAD);
        for (int i = 0; i < blocks.size(); i++) {
            text.append("public static void block" + i + "(Client client) throws Exception {\n")
                    .append(blocks.get(i)).append("}\n");
        }
        Files.writeString(source, text + "}\n");
        judge.accept("the README compiles", () -> compile(source));
        try (URLClassLoader loader = new URLClassLoader(new URL[] {dir.toUri().toURL()})) {
            for (int i = 0; i < blocks.size(); i++) {
                String method = "block" + i;
                judge.accept("the README, " + method, () -> play(loader.loadClass("Readme"), method));
            }
        }
        Files.delete(dir.resolve("Readme.class"));
        Files.delete(source);
        Files.delete(dir);
    }

    private static void compile(Path source) {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter errors = new StringWriter();
        try (var files = compiler.getStandardFileManager(null, null, null)) {
            boolean isOk = compiler.getTask(errors, files, null, List.of("-d", source.getParent().toString()), null,
                    files.getJavaFileObjects(source)).call();
            Check.that(isOk, errors.toString());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void play(Class<?> readme, String method) throws Exception {
        try (Client client = Client.create()) {
            readme.getMethod(method, Client.class).invoke(null, client);
        } catch (InvocationTargetException e) {
            throw new AssertionError(e.getCause());
        }
    }
}
