import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.StringJoiner;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs its argument, a statement, and then a query for each line of the standard input.
 *
 * <p>A row is printed as a line of JSON, an array; the end of an answer as an empty line.
 */
public class SqlAnswers {
    public static void main(String[] statements) throws Exception {
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        tables.getConfig().set("parallelism.default", "1");
        // The library that would compress exchanges is not among the jars.
        tables.getConfig().set("taskmanager.network.compression.codec", "NONE");
        for (String statement : statements) {
            tables.executeSql(statement);
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader queries =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String query = queries.readLine(); query != null; query = queries.readLine()) {
            try (CloseableIterator<Row> rows = tables.executeSql(query).collect()) {
                while (rows.hasNext()) {
                    out.println(json(rows.next()));
                }
            }
            out.println();
        }
    }

    private static String json(Row row) {
        StringJoiner fields = new StringJoiner(",", "[", "]");
        for (int place = 0; place < row.getArity(); place++) {
            Object value = row.getField(place);
            fields.add(value instanceof CharSequence ? "\"" + value + "\"" : String.valueOf(value));
        }
        return fields.toString();
    }
}
