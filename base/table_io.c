typedef int table_io_pending;
