// Native memory of a Java program: buffers outside its heap, and zlib's. Native ROUNDS; two threads.
import java.lang.reflect.Field;
import java.util.Random;
import java.util.zip.Deflater;
import java.util.zip.Inflater;
import sun.misc.Unsafe;

public class Native {
  static final int KEPT = 120, MOST = 400_000;

  static long work(Unsafe memory, int rounds, int seed) throws Exception {
    Random draw = new Random(seed);
    long[] kept = new long[KEPT];
    int[] sizes = new int[KEPT];
    byte[] text = new byte[MOST], packed = new byte[MOST + 1000], back = new byte[MOST];
    long sum = 0;
    for (int round = 0; round < rounds; round++) {
      int place = draw.nextInt(KEPT), size = 100 + (int) (MOST * Math.pow(draw.nextDouble(), 3) * 0.99);
      for (int i = 0; i < size; i++)
        text[i] = (byte) (draw.nextInt() & 15);
      Deflater deflater = new Deflater(1 + round % 6);
      deflater.setInput(text, 0, size);
      deflater.finish();
      int length = deflater.deflate(packed);
      deflater.end();
      Inflater inflater = new Inflater();
      inflater.setInput(packed, 0, length);
      sum += inflater.inflate(back) + back[size - 1];
      inflater.end();
      if (kept[place] != 0) {
        sum += memory.getByte(kept[place] + sizes[place] - 1);
        memory.freeMemory(kept[place]);
      }
      kept[place] = memory.allocateMemory(size);
      sizes[place] = size;
      memory.copyMemory(text, Unsafe.ARRAY_BYTE_BASE_OFFSET, null, kept[place], size);
    }
    for (long address : kept)
      if (address != 0)
        memory.freeMemory(address);
    return sum;
  }

  public static void main(String[] words) throws Exception {
    Field field = Unsafe.class.getDeclaredField("theUnsafe");
    field.setAccessible(true);
    Unsafe memory = (Unsafe) field.get(null);
    int rounds = Integer.parseInt(words[0]);
    long[] sums = new long[2];
    Thread[] threads = new Thread[sums.length];
    for (int i = 0; i < sums.length; i++) {
      int number = i;
      threads[i] = new Thread(() -> {
        try {
          sums[number] = work(memory, rounds, number + 1);
        } catch (Exception error) {
          throw new IllegalStateException(error);
        }
      });
      threads[i].start();
    }
    for (Thread thread : threads)
      thread.join();
    System.out.println(sums[0] + " " + sums[1]);
  }
}
