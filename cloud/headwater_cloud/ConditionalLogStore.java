package headwater;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A log store of Delta for S3 that several drivers may write to: a commit is created by a PUT with
 * `If-None-Match: *`, so of two drivers that write one version exactly one succeeds, and the other gets the
 * FileAlreadyExistsException from which Delta's conflict check follows. Delta's own store for s3a looks for
 * the file and then overwrites it. `logstore.py` compiles this class in the JVM, with the compiler that Spark
 * has for its own code: so it has no lambdas, and no generics that need inference.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final int ATTEMPTS = 5;
    private static final long PAUSE_MS = 200;

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            text.write(((String) actions.next()).getBytes("UTF-8"));
            text.write('\n');
        }
        byte[] bytes = text.toByteArray();
        FileSystem system = path.getFileSystem(configuration);
        Path resolved = system.makeQualified(path);
        for (int attempt = 1; ; attempt++) {
            try {
                create(system, resolved, bytes);
                return;
            } catch (IOException error) {
                if (exists(error)) {
                    // A client that got no answer to its PUT sends it again: then the file is our own.
                    if (Arrays.equals(bytes, read(system, resolved, bytes.length))) {
                        return;
                    }
                    throw new java.nio.file.FileAlreadyExistsException(path.toString());
                }
                // 409: S3 had two conditional requests at the same moment, and neither may have won.
                if (attempt == ATTEMPTS || !says(error, "Status Code: 409")) {
                    throw error;
                }
            }
            try {
                Thread.sleep(PAUSE_MS * attempt);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new java.io.InterruptedIOException(path.toString());
            }
        }
    }

    private static void create(FileSystem system, Path path, byte[] bytes) throws IOException {
        FSDataOutputStreamBuilder builder = system.createFile(path);
        builder.overwrite(false);
        builder.recursive();
        // `must`: a file system that has no such PUT refuses, and nothing is written.
        builder.must("fs.option.create.conditional.overwrite", "true");
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        try {
            out.write(bytes);
        } catch (IOException error) {
            out.abort();
            throw error;
        }
        out.close();
    }

    private static boolean exists(Throwable error) {
        return says(error, "Status Code: 412") || error instanceof org.apache.hadoop.fs.FileAlreadyExistsException;
    }

    private static boolean says(Throwable error, String words) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause.getMessage() != null && cause.getMessage().contains(words)) {
                return true;
            }
        }
        return false;
    }

    /** The bytes of a file of this length; null of one that has another. */
    private static byte[] read(FileSystem system, Path path, int length) throws IOException {
        if (system.getFileStatus(path).getLen() != length) {
            return null;
        }
        byte[] found = new byte[length];
        FSDataInputStream stream = system.open(path);
        try {
            stream.readFully(0, found);
        } finally {
            stream.close();
        }
        return found;
    }
}
