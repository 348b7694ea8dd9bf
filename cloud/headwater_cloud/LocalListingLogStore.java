package headwater;

import io.delta.storage.HDFSLogStore;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's own log store for a local disk, but for the listing of the log, which each batch does several
 * times. Hadoop's listing makes several system calls for each file of the folder, and Delta then drops the
 * files that come before the name it asked for, usually the newest checkpoint. Here the names are read first, and
 * only what was asked for is looked at. `logstore.py` compiles this class in the JVM, with the compiler that
 * Spark has for its own code: so it has no lambdas, and no generics that need inference.
 */
public class LocalListingLogStore extends HDFSLogStore {
    public LocalListingLogStore(Configuration configuration) {
        super(configuration);
    }

    public Iterator listFrom(Path path, Configuration configuration) throws IOException {
        FileSystem system = path.getFileSystem(configuration);
        String first = path.getName();
        // A name that begins with a dot may be one of the checksum files that Hadoop hides.
        if (!(system instanceof LocalFileSystem) || first.compareTo("0") < 0) {
            return super.listFrom(path, configuration);
        }
        Path folder = system.makeQualified(path).getParent();
        String[] names = ((LocalFileSystem) system).pathToFile(folder).list();
        if (names == null) {
            return super.listFrom(path, configuration); // not a folder: raises what Delta expects
        }
        Arrays.sort(names);
        ArrayList found = new ArrayList();
        for (int i = 0; i < names.length; i++) {
            if (names[i].compareTo(first) >= 0) {
                try {
                    found.add(system.getFileStatus(new Path(folder, names[i])));
                } catch (FileNotFoundException error) {
                    continue; // removed since its name was read; Hadoop's listing leaves it out too
                }
            }
        }
        return found.iterator();
    }
}
