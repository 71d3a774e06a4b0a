import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** Runs its arguments, settings (SET KEY=VALUE) and SQL statements, on a mini cluster of its own. */
public class SqlJob {
    public static void main(String[] statements) throws Exception {
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        for (String statement : statements) {
            if (statement.startsWith("SET ")) {
                String[] setting = statement.substring("SET ".length()).split("=", 2);
                tables.getConfig().set(setting[0], setting[1]);
                continue;
            }
            TableResult result = tables.executeSql(statement);
            if (statement.startsWith("INSERT ")) {
                result.await();
            }
        }
    }
}
