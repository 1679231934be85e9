from tests.pipelines.test_scratch_remote import store
def test_h(store):
    c=b"a\n--==0==--\nb"
    store._connection.file_system().pipe_file(store._path("raw"), c)
    print("raw", store.uri, store.get("raw"))
    store.put_once("k", c); print("ours", store.get("k"))
